// What the training loop reads: batches of a GPT as a pure function of settings, seed and sample numbers.
// World size, micro-batch size and the number of threads never change which tokens a number stands for.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "colonnade/config/training.h"
#include "colonnade/data/gpt_dataset.h"
#include "colonnade/data/gpt_sample.h"
#include "colonnade/data/sampler.h"
#include "colonnade/data/split.h"

namespace colonnade::data {

/// What the data must know of the tokenizer.
struct TokenIds {
  std::int64_t vocab_size = 0;  ///< ids are 0 to vocab_size - 1; 0: not checked
  std::int64_t eod = -1;        ///< end of document; -1: none
  std::int64_t pad = -1;        ///< fills samples that the data cannot
};

/// One micro-batch in row order, b x s numbers in each tensor.
struct HostBatch {
  std::int64_t micro_batch = 0;  ///< b
  std::int64_t seq = 0;          ///< s
  std::vector<std::int64_t> tokens, labels, position_ids;
  std::vector<float> loss_mask;              ///< 1 where the loss counts, else 0
  std::vector<std::uint8_t> attention_mask;  ///< [b, s, s], 1: masked; empty where it is causal or left out
  std::vector<std::int64_t> samples;         ///< [b]: the rows' numbers in the run, which key their dropout
};

/// How far a run has come.
struct SoFar {
  std::int64_t iteration = 0;  ///< steps done
  std::int64_t samples = 0;    ///< training samples read
};

/// The last iteration of a run that is so far as `done`: --train-iters, or where the global batches that fit
/// into what is left of --train-samples end; `done` itself for a run without a length (--skip-train).
std::int64_t last_iteration(const config::Training& training, const SoFar& done);

/// Evaluations of the validation split from the first iteration to `iteration`, each of eval_iters global
/// batches: one every eval_interval, and one at the end unless that is one of them. 1 for a validation alone
/// (--skip-train), 0 for a run that never validates.
std::int64_t evaluations(const config::Training& training, std::int64_t iteration);

/// Samples a run needs of train, valid and test: train_samples or train_iters * B;
/// (last_iteration / eval_interval + 1) * eval_iters * B; eval_iters * B, with B the global batch size. The
/// indices of a data set depend on them, so they are Megatron's, which asks for one evaluation too many.
std::array<std::int64_t, 3> sample_counts(const config::Training& training, const SoFar& done = {});

/// Whether batches say who sees whom, where --reset-attention-mask asks for more than causal attention.
enum class Masks { kMade, kLeftOut };

/// The samples of one split in the run's order. get() is safe to call from many threads.
class GptBatches {
 public:
  struct Plan {
    std::int64_t seq_length = 0;
    SampleRules rules;
    std::int64_t vocab_size = 0;  ///< as TokenIds
    std::int64_t cyclic_step =
        0;  ///< 0: --dataloader-type single; else cyclic, whole global batches an epoch
  };
  GptBatches(std::shared_ptr<const SampleSource> samples, const Plan& plan);

  /// Samples in the split: one epoch for cyclic, all there are for single.
  [[nodiscard]] std::int64_t size() const { return samples_->size(); }
  /// Whether numbers never end: cyclic begins epoch after epoch.
  [[nodiscard]] bool endless() const { return plan_.cyclic_step > 0; }
  /// Samples that an epoch of cyclic permutes; 0 for single.
  [[nodiscard]] std::int64_t permuted() const { return endless() ? size() - size() % plan_.cyclic_step : 0; }
  [[nodiscard]] const SampleSource& samples() const { return *samples_; }

  /// The batch of these numbers: 0 is the first sample of the run, consumed_samples the next one after a
  /// resume. Throws DataError past the end (single), when the data is damaged, and for a token outside of the
  /// vocabulary.
  [[nodiscard]] HostBatch get(std::span<const std::int64_t> numbers, Masks masks = Masks::kMade) const;
  /// get() of `count` numbers from `first`.
  [[nodiscard]] HostBatch get(std::int64_t first, std::int64_t count) const;

 private:
  struct Epoch {
    std::int64_t number = -1;
    std::vector<std::int64_t> order;
  };
  [[nodiscard]] std::int64_t sample_of(std::int64_t number) const;
  [[nodiscard]] std::shared_ptr<const Epoch> epoch(const CyclicOrder& cyclic, std::int64_t number) const;

  std::shared_ptr<const SampleSource> samples_;
  Plan plan_;
  mutable std::mutex mutex_;  // guards epoch_, the order that was used last
  mutable std::shared_ptr<const Epoch> epoch_;
};

/// train, valid, test; null where the split is empty or no samples of it are wanted.
using GptSplits = std::array<std::unique_ptr<GptBatches>, 3>;

/// Opens the data of a run that is so far as `done`: --data-path with --split, or paths per split, or
/// --mock-data. Indices come from the cache folder or are built here, by whichever process comes first; no
/// rank waits in a collective. Throws ConfigError for settings that contradict each other, also where a split
/// that the run reads does not fill one epoch of cyclic, and DataError for missing or damaged data.
GptSplits open_gpt_batches(const config::Data& data, const config::Training& training, const TokenIds& ids,
                           const SoFar& done = {});

/// The sample sources alone, for `data inspect`. `counts`: samples wanted of each split.
std::array<std::shared_ptr<const SampleSource>, 3> open_gpt_samples(const config::Data& data,
                                                                    const std::array<std::int64_t, 3>& counts,
                                                                    std::int64_t seq_length,
                                                                    std::int64_t seed, const TokenIds& ids);

}  // namespace colonnade::data
