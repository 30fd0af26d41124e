// Model inputs from samples of images and text, and their batches, prefetched by threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "colonnade/base/byte_semaphore.h"
#include "colonnade/data/prefetcher.h"
#include "colonnade/images/clip_image.h"
#include "colonnade/images/shard_order.h"
#include "colonnade/images/shard_samples.h"
#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::images {

struct ImageTextPlan {
  std::int64_t seq_length = 0;         ///< s
  std::int64_t image_tokens = 1;       ///< placeholders per image
  std::int64_t image_token = -200;     ///< id of a placeholder; Megatron's default
  std::int64_t pad = 0;                ///< id that pads short rows
  std::uint64_t seed = 1234;           ///< seed of the order and of the choice among several answers
  std::int64_t block = 256;            ///< see ShardOrder
  std::int64_t window = 64;            ///< see ShardOrder
  std::int64_t max_pixels = 89478485;  ///< maximum pixels of a decoded image; where Pillow starts to warn
  /// Maximum bytes of samples and of decoded images that all threads hold together; a larger one waits until
  /// it is alone.
  std::int64_t max_read_bytes = std::int64_t{512} << 20;
  std::int64_t max_decoded_bytes = std::int64_t{1} << 30;
  OnError on_error = OnError::kStop;
  ImageSettings image;
};

/// One row: image placeholders, prompt and answer, and the labels shifted by one.
struct ImageText {
  std::int64_t sample = 0;                ///< index in shard order
  std::vector<std::int64_t> tokens = {};  ///< [s]
  std::vector<std::int64_t> labels = {};  ///< [s]; 0 without a loss
  std::vector<float> loss_mask = {};      ///< [s], 1 where the label belongs to the answer or is its end
  /// Position of the first placeholder of each image in tokens.
  std::vector<std::int64_t> image_starts = {};
  std::vector<float> pixels = {};  ///< [images, 3, H, W]
};

/// Samples of an endless run by their number: a pure function of (shards, plan, number). Thread-safe.
///
/// A row consists of the prompt up to "<image>", the placeholders, the rest of the prompt, a line feed unless
/// there is no prompt, the answer, and the tokenizer's end of document. Without "<image>" the placeholders
/// come first. Of several answers one is drawn by (seed, number). s + 1 ids are used: longer rows are
/// truncated, shorter ones padded.
class ImageTextSamples {
 public:
  /// Throws ConfigError for invalid lengths, sizes and limits.
  ImageTextSamples(std::shared_ptr<const ShardSamples> shards,
                   std::shared_ptr<const tokenizers::Tokenizer> tokenizer, const ImageTextPlan& plan);

  [[nodiscard]] const ShardSamples& shards() const { return *shards_; }
  [[nodiscard]] const ImageTextPlan& plan() const { return plan_; }
  [[nodiscard]] const ShardOrder& order() const { return order_; }
  /// The sample of a number. Throws DataError for one that is unreadable or whose prompt leaves no space for
  /// an answer; with kSkip it is counted and replaced by the next number's sample (unless 100 in a row are
  /// bad).
  [[nodiscard]] ImageText get(std::int64_t number) const;
  /// Replaced samples so far; each request of the same one counts again.
  [[nodiscard]] std::int64_t skipped() const { return skipped_; }

 private:
  [[nodiscard]] ImageText make(std::int64_t sample, std::int64_t number) const;
  void add_text(const RawSample& raw, std::int64_t number, ImageText& out) const;
  void add_pixels(const RawSample& raw, ImageText& out) const;

  std::shared_ptr<const ShardSamples> shards_;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_;
  ImageTextPlan plan_;
  ShardOrder order_;
  mutable ByteSemaphore read_;  // its holders may wait for decoded_, never the other way round
  mutable ByteSemaphore decoded_;
  mutable std::atomic<std::int64_t> skipped_{0};
};

/// A micro-batch of b rows; row-major arrays.
struct ImageBatch {
  std::int64_t micro_batch = 0;            ///< b
  std::int64_t seq = 0;                    ///< s
  std::vector<std::int64_t> tokens = {};   ///< [b, s]
  std::vector<std::int64_t> labels = {};   ///< [b, s]
  std::vector<float> loss_mask = {};       ///< [b, s]
  std::vector<std::int64_t> numbers = {};  ///< [b] sample numbers in the run, which seed the rows' dropout
  std::vector<std::int64_t> samples = {};  ///< [b] indices in shard order
  std::vector<std::int64_t> image_counts = {};  ///< [b] images per row; their sum is n
  /// [n] position of the first placeholder of each image, as row * s + position in the row.
  std::vector<std::int64_t> image_starts = {};
  std::vector<float> pixels = {};  ///< [n, 3, H, W]
};

/// Rows of a run that a data-parallel rank reads, as in job/token_steps.h: its micro-batch m starts at row
/// first + (m * ranks + rank) * micro_batch.
struct ImageShare {
  std::int64_t first = 0;  ///< consumed samples of the run, the only state in a checkpoint
  std::int64_t micro_batch = 1;
  std::int64_t rank = 0;
  std::int64_t ranks = 1;
};

/// Sample number of row `k` of a rank.
std::int64_t number_of(const ImageShare& share, std::int64_t k);

/// Yields the micro-batches of one data-parallel rank in order. Workers prefetch samples, at most two each,
/// instead of batches: the first batch is available soon, and the number of workers bounds the memory.
/// Another thread assembles up to two batches. Batches do not depend on `workers`; with 0 next() does all the
/// work.
class ImageLoader {
 public:
  ImageLoader(std::shared_ptr<const ImageTextSamples> samples, const ImageShare& share, int workers);
  /// Rethrows the error of ImageTextSamples::get for one of its rows, now and in all later calls. For one
  /// caller at a time.
  ImageBatch next() { return batches_.next(); }

 private:
  ImageBatch assemble();

  std::shared_ptr<const ImageTextSamples> samples_;
  ImageShare share_;
  std::int64_t read_ = 0;
  std::exception_ptr failed_;
  data::Prefetcher<ImageText> rows_;
  data::Prefetcher<ImageBatch> batches_;  // last: it reads the members above
};

}  // namespace colonnade::images
