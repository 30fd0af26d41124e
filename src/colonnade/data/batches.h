// Batches for the training loop: a pure function of settings, seed and sample numbers. The tokens of a sample
// number depend neither on world size and micro-batch size nor on the number of threads.
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

/// One micro-batch on the host; tensors are [b, s] row by row unless noted. For encoder-decoder models the
/// tensors without `encoder` in their name belong to the decoder.
struct HostBatch {
  std::int64_t micro_batch = 0;  ///< b
  std::int64_t seq = 0;          ///< s
  std::vector<std::int64_t> tokens, labels;
  std::vector<std::int64_t> position_ids;  ///< empty: 0 to s - 1 in every row
  std::vector<float> loss_mask;            ///< 1 where the loss counts, else 0; empty: all 1
  /// [documents + 1] document bounds in the b s tokens, row by row: tokens attend to their own document only.
  /// Every row starts one. Empty: every row is one document.
  std::vector<std::int64_t> cu_seqlens;
  std::vector<std::int64_t> samples;          ///< [b] sample numbers in the run, which seed the rows' dropout
  std::int64_t encoder_seq = 0;               ///< 0 without an encoder
  std::vector<std::int64_t> encoder_tokens;   ///< [b, encoder_seq]
  std::vector<std::uint8_t> encoder_padding;  ///< [b, encoder_seq], 1: padding, masked out as keys
  std::vector<std::int64_t> token_types;      ///< BERT only: 0 in the first segment of a row, 1 in the second
  std::vector<std::uint8_t> padding;          ///< BERT only: [b, s], 1: padding, masked out as keys
  std::vector<std::int64_t> swapped;  ///< BERT's sentence order labels: [b], 1 where the segments are swapped
};

/// Progress of a run.
struct RunProgress {
  std::int64_t iteration = 0;  ///< completed iterations
  std::int64_t samples = 0;    ///< consumed training samples
};

/// Last iteration of a run whose progress is `done`: --train-iters, or the last full global batch within the
/// remaining --train-samples, of the size that config::batch_schedule gives each step; `done.iteration` for a
/// run without a length (--skip-train).
std::int64_t last_iteration(const config::Training& training, const RunProgress& done);

/// Number of evaluations of the validation split up to `iteration`: one per eval_interval from
/// start_eval_at_iter on, and one at the end unless it coincides with the last of them. 1 for validation only
/// (--skip-train), 0 without validation.
std::int64_t evaluations(const config::Training& training, std::int64_t iteration);

/// Requested samples of train, valid and test; empty requests one epoch.
using SampleCounts = std::array<std::optional<std::int64_t>, 3>;

/// Samples that a run requests, with the final global batch size B and E samples per evaluation step
/// (config::eval_batch_size):
///   train  train_samples, or train_iters * B
///   valid  n * eval_iters * E, or one epoch (--full-validation), with n the larger of evaluations() and
///          last_iteration / eval_interval + 1 - start_eval_at_iter / eval_interval
///   test   eval_iters * E
/// Indices depend on these counts, so they equal Megatron's, which requests one evaluation too many, and more
/// training samples than a growing batch size reads.
SampleCounts sample_counts(const config::Training& training, const RunProgress& done = {});

/// Selects the samples for which data are opened.
struct DataRequest {
  RunProgress done = {};  ///< progress of the run that reads the samples
  /// Sample counts that replace those of a run (sample_counts); a split with count 0 is not opened.
  std::optional<SampleCounts> counts = {};
};
SampleCounts sample_counts(const config::Training& training, const DataRequest& wanted);

/// The samples of one split in the run's order. get() is thread-safe.
class Batches {
 public:
  /// `cyclic_step` is 0 for --dataloader-type single (samples in index order); for cyclic an epoch is the
  /// largest multiple of it.
  Batches(std::shared_ptr<const SampleSource> samples, std::int64_t cyclic_step);
  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;
  virtual ~Batches() = default;

  /// Number of samples in the split.
  [[nodiscard]] std::int64_t size() const { return samples_->size(); }
  /// Whether sample numbers are unbounded: cyclic starts a new epoch after each one.
  [[nodiscard]] bool is_cyclic() const { return cyclic_step_ > 0; }
  /// Samples that each cyclic epoch permutes; 0 for single.
  [[nodiscard]] std::int64_t permuted() const { return is_cyclic() ? size() - size() % cyclic_step_ : 0; }
  [[nodiscard]] const SampleSource& samples() const { return *samples_; }
  /// Range of the token ids in the text.
  [[nodiscard]] virtual TextIds text_ids() const { return {}; }

  /// The batch of the given sample numbers: 0 is the first sample of the run, consumed_samples the next one
  /// after a resume. Throws DataError past the end (single), for damaged data and for a token id outside the
  /// vocabulary.
  [[nodiscard]] HostBatch get(std::span<const std::int64_t> numbers) const;
  /// Index into samples() of sample `number` of the run. Throws ConfigError if cyclic has no full epoch.
  [[nodiscard]] std::int64_t sample_of(std::int64_t number) const;
  /// get() of `count` numbers from `first`.
  [[nodiscard]] HostBatch get(std::int64_t first, std::int64_t count) const;

 protected:
  /// The batch of the `chosen` indices into samples(), without its micro_batch and samples fields.
  [[nodiscard]] virtual HostBatch make(std::span<const std::int64_t> chosen) const = 0;
  /// Throws DataError unless all `ids` of a sample are in [0, vocab_size); a `vocab_size` of 0 disables the
  /// check.
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
  mutable std::mutex mutex_;  // guards epoch_, the most recently used order
  mutable std::shared_ptr<const Epoch> epoch_;
};

/// train, valid, test; null for a split that is empty or not requested.
using Splits = std::array<std::unique_ptr<Batches>, 3>;

}  // namespace colonnade::data
