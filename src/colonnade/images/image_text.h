// Samples of images and text as a model reads them, and batches of them made ahead by threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "colonnade/base/byte_gate.h"
#include "colonnade/data/prefetcher.h"
#include "colonnade/images/clip_image.h"
#include "colonnade/images/shard_order.h"
#include "colonnade/images/shard_samples.h"
#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::images {

struct ImageTextPlan {
  std::int64_t seq_length = 0;         ///< s
  std::int64_t image_tokens = 1;       ///< placeholders that stand for one image
  std::int64_t image_token = -200;     ///< what they are; Megatron's default
  std::int64_t pad = 0;                ///< what rows are filled up with
  std::uint64_t seed = 1234;           ///< decides the order and which of several answers is read
  std::int64_t block = 256;            ///< see ShardOrder
  std::int64_t window = 64;            ///< see ShardOrder
  std::int64_t max_pixels = 89478485;  ///< a larger image is not decoded; where Pillow begins to warn
  /// Bytes of the samples that all threads hold at a time, and of the images that they decode; a larger one
  /// waits until it is alone.
  std::int64_t read_at_once = std::int64_t{512} << 20;
  std::int64_t decoded_at_once = std::int64_t{1} << 30;
  OnError on_error = OnError::kStop;
  ImageSettings image;
};

/// One sample: its image placeholders, prompt and answer, shifted by one as labels.
struct ImageText {
  std::int64_t sample = 0;                ///< in the order of shards
  std::vector<std::int64_t> tokens = {};  ///< [s]
  std::vector<std::int64_t> labels = {};  ///< [s]; 0 where there is no loss
  std::vector<float> loss_mask = {};      ///< [s], 1: the label is the answer's or the end behind it
  /// Of each image, the place of its first placeholder in tokens.
  std::vector<std::int64_t> image_starts = {};
  std::vector<float> pixels = {};  ///< [images, 3, H, W]
};

/// Samples of an endless run by their number: a function of (shards, plan, number), from any thread.
///
/// A row is: text in front of "<image>" in the prompt, the placeholders, the rest of the prompt, a line feed
/// unless there is no prompt, the answer, the tokenizer's end of document. Without "<image>" the placeholders
/// come first. Of several answers one is drawn by (seed, number). s + 1 ids are read, what lies behind is cut
/// off, rows that are shorter are filled.
class ImageTextSamples {
 public:
  /// Throws ConfigError for lengths, sizes and limits that cannot be.
  ImageTextSamples(std::shared_ptr<const ShardSamples> shards,
                   std::shared_ptr<const tokenizers::Tokenizer> tokenizer, const ImageTextPlan& plan);

  [[nodiscard]] const ShardSamples& shards() const { return *shards_; }
  [[nodiscard]] const ImageTextPlan& plan() const { return plan_; }
  [[nodiscard]] const ShardOrder& order() const { return order_; }
  /// The sample of a number. One that cannot be read, or whose prompt leaves no room for an answer, throws
  /// DataError; with kSkip it is counted, and the next number's stands in for it (unless 100 in a row are
  /// such).
  [[nodiscard]] ImageText get(std::int64_t number) const;
  /// Samples that others stood in for, so far; they count again each time they are asked for.
  [[nodiscard]] std::int64_t skipped() const { return skipped_; }

 private:
  [[nodiscard]] ImageText make(std::int64_t sample, std::int64_t number) const;
  void add_text(const RawSample& raw, std::int64_t number, ImageText& out) const;
  void add_pixels(const RawSample& raw, ImageText& out) const;

  std::shared_ptr<const ShardSamples> shards_;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_;
  ImageTextPlan plan_;
  ShardOrder order_;
  mutable ByteGate read_;  // who is in it may wait for decoded_, and never the other way round
  mutable ByteGate decoded_;
  mutable std::atomic<std::int64_t> skipped_{0};
};

/// A micro-batch of b rows; row-major, of plain numbers.
struct ImageBatch {
  std::int64_t micro_batch = 0;            ///< b
  std::int64_t seq = 0;                    ///< s
  std::vector<std::int64_t> tokens = {};   ///< [b, s]
  std::vector<std::int64_t> labels = {};   ///< [b, s]
  std::vector<float> loss_mask = {};       ///< [b, s]
  std::vector<std::int64_t> numbers = {};  ///< [b]: the rows' numbers in the run, which key their dropout
  std::vector<std::int64_t> samples = {};  ///< [b]: what they are in the order of shards
  std::vector<std::int64_t> image_counts = {};  ///< [b]: images of each row; they sum to n
  /// [n]: row * s + place of the first placeholder of each image.
  std::vector<std::int64_t> image_starts = {};
  std::vector<float> pixels = {};  ///< [n, 3, H, W]
};

/// Which rows of a run a data rank reads, as job/token_steps.h has it: its micro-batch m is rows
/// first + (m * ranks + rank) * micro_batch on.
struct ImageShare {
  std::int64_t first = 0;  ///< consumed samples of the run: all that a checkpoint keeps
  std::int64_t micro_batch = 1;
  std::int64_t rank = 0;
  std::int64_t ranks = 1;
};

/// The number of the run that row `k` of a rank's rows has.
std::int64_t number_of(const ImageShare& share, std::int64_t k);

/// The micro-batches of one data rank, one after the other. Workers make samples ahead, two each at most, not
/// batches: the first batch is there soon, and memory is bounded by the workers. One more thread puts up to
/// two batches together. Batches do not depend on `workers`; with 0 next() does it all.
class ImageLoader {
 public:
  ImageLoader(std::shared_ptr<const ImageTextSamples> samples, const ImageShare& share, int workers);
  /// Throws what ImageTextSamples::get threw for one of its rows, and from then on. For one caller at a time.
  ImageBatch next() { return batches_.next(); }

 private:
  ImageBatch put_together();

  std::shared_ptr<const ImageTextSamples> samples_;
  ImageShare share_;
  std::int64_t read_ = 0;
  std::exception_ptr failed_;
  data::Prefetcher<ImageText> rows_;
  data::Prefetcher<ImageBatch> batches_;  // last: it reads the members above
};

}  // namespace colonnade::images
