// What the training loop reads: batches as a pure function of settings, seed and sample numbers. World size,
// micro-batch size and the number of threads never change which tokens a number stands for.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "colonnade/config/training.h"
#include "colonnade/data/sample_source.h"
#include "colonnade/data/sampler.h"
#include "colonnade/data/text_ids.h"

namespace colonnade::data {

/// One micro-batch in row order, b x s numbers in each tensor. Where a model has an encoder and a decoder the
/// tensors without `encoder` in their name are the decoder's.
struct HostBatch {
  std::int64_t micro_batch = 0;  ///< b
  std::int64_t seq = 0;          ///< s
  std::vector<std::int64_t> tokens, labels;
  std::vector<std::int64_t> position_ids;    ///< empty: 0 to s - 1 in every row
  std::vector<float> loss_mask;              ///< 1 where the loss counts, else 0; empty: it counts everywhere
  std::vector<std::uint8_t> attention_mask;  ///< [b, s, s], 1: masked; empty where it is causal or left out
  std::vector<std::int64_t> samples;         ///< [b]: the rows' numbers in the run, which key their dropout
  std::int64_t encoder_seq = 0;              ///< 0: there is no encoder
  std::vector<std::int64_t> encoder_tokens;  ///< [b, encoder_seq]
  std::vector<std::uint8_t> encoder_padding;  ///< [b, encoder_seq], 1: filling that nobody may see
  std::vector<std::int64_t> token_types;      ///< of BERT: 0 in the first part of a row, 1 in the second
  std::vector<std::uint8_t> padding;          ///< of BERT, [b, s], 1: filling that nobody may see
  std::vector<std::int64_t> swapped;  ///< of BERT with sentence order, [b]: 1 where the parts are swapped
};

/// How far a run has come.
struct SoFar {
  std::int64_t iteration = 0;  ///< steps done
  std::int64_t samples = 0;    ///< training samples read
};

/// The last iteration of a run that is so far as `done`: --train-iters, or where the global batches that fit
/// into what is left of --train-samples end; `done` itself for a run without a length (--skip-train).
std::int64_t last_iteration(const config::Training& training, const SoFar& done);

/// Evaluations of the validation split from the first iteration to `iteration`: one every eval_interval, and
/// one at the end unless that is one of them. 1 for a validation alone
/// (--skip-train), 0 for a run that never validates.
std::int64_t evaluations(const config::Training& training, std::int64_t iteration);

/// Samples wanted of train, valid and test; empty: one pass.
using Counts = std::array<std::optional<std::int64_t>, 3>;

/// Samples a run needs of train, valid and test: train_samples or train_iters * B;
/// (last_iteration / eval_interval + 1) * eval_iters * B, or one pass (--full-validation); eval_iters * B,
/// with B the global batch size. The indices of a data set depend on them, so they are Megatron's, which asks
/// for one evaluation too many.
Counts sample_counts(const config::Training& training, const SoFar& done = {});

/// What is opened of the data.
struct Wanted {
  SoFar done = {};  ///< of the run whose samples they are
  /// Samples of train, valid and test where it is none of a run's (sample_counts); a split of 0 stays closed.
  std::optional<Counts> counts = {};
};
Counts sample_counts(const config::Training& training, const Wanted& wanted);

/// Whether batches say who sees whom, where --reset-attention-mask asks for more than causal attention.
enum class Masks { kMade, kLeftOut };

/// The samples of one split in the run's order. get() is safe to call from many threads.
class Batches {
 public:
  /// `cyclic_step`: 0 for --dataloader-type single, the samples as they come; else cyclic, whole multiples of
  /// it an epoch.
  Batches(std::shared_ptr<const SampleSource> samples, std::int64_t cyclic_step);
  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;
  virtual ~Batches() = default;

  /// Samples in the split: one epoch for cyclic, all there are for single.
  [[nodiscard]] std::int64_t size() const { return samples_->size(); }
  /// Whether numbers never end: cyclic begins epoch after epoch.
  [[nodiscard]] bool endless() const { return cyclic_step_ > 0; }
  /// Samples that an epoch of cyclic permutes; 0 for single.
  [[nodiscard]] std::int64_t permuted() const { return endless() ? size() - size() % cyclic_step_ : 0; }
  [[nodiscard]] const SampleSource& samples() const { return *samples_; }
  /// Of the data as they are read.
  [[nodiscard]] virtual TextIds text_ids() const { return {}; }

  /// The batch of these numbers: 0 is the first sample of the run, consumed_samples the next one after a
  /// resume. Throws DataError past the end (single), when the data is damaged, and for a token outside of the
  /// vocabulary.
  [[nodiscard]] HostBatch get(std::span<const std::int64_t> numbers, Masks masks = Masks::kMade) const;
  /// Which of samples() a number of the run stands for. Throws ConfigError where there is no epoch of cyclic.
  [[nodiscard]] std::int64_t sample_of(std::int64_t number) const;
  /// get() of `count` numbers from `first`.
  [[nodiscard]] HostBatch get(std::int64_t first, std::int64_t count) const;

 protected:
  /// The batch whose rows are the `chosen` of samples(), but for its micro_batch and samples.
  [[nodiscard]] virtual HostBatch make(std::span<const std::int64_t> chosen, Masks masks) const = 0;
  /// Throws DataError unless all `ids`, of a sample, are below `vocab_size`; 0: not checked.
  void check_vocabulary(std::span<const std::int64_t> ids, std::int64_t vocab_size,
                        std::int64_t sample) const;

 private:
  struct Epoch {
    std::int64_t number = -1;
    std::vector<std::int64_t> order;
  };
  [[nodiscard]] std::shared_ptr<const Epoch> epoch(const CyclicOrder& cyclic, std::int64_t number) const;

  std::shared_ptr<const SampleSource> samples_;
  std::int64_t cyclic_step_;
  mutable std::mutex mutex_;  // guards epoch_, the order that was used last
  mutable std::shared_ptr<const Epoch> epoch_;
};

/// train, valid, test; null where the split is empty or no samples of it are wanted.
using Splits = std::array<std::unique_ptr<Batches>, 3>;

}  // namespace colonnade::data
