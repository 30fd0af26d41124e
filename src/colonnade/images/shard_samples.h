// Samples of tar shards: the bytes of an image and the texts beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "colonnade/images/shard_index.h"

namespace colonnade::images {

/// A sample as its files say it.
struct RawSample {
  std::string where;  ///< "SHARD, sample KEY at byte N", for messages
  std::string shard = {};
  std::string key = {};
  std::int64_t offset = 0;  ///< of its first header in the shard
  std::string bytes = {};   ///< all of it, as in the shard
  std::size_t image_at = 0, image_size = 0;
  std::string prompt = {};                ///< VQASample's context; else empty
  std::vector<std::string> answers = {};  ///< the caption, or VQASample's answers; one at least

  /// The bytes of a JPEG or PNG file.
  [[nodiscard]] std::span<const char> image() const { return std::span(bytes).subspan(image_at, image_size); }
};

struct ShardOptions {
  OnError on_error = OnError::kStop;
  int threads = 1;                            ///< that build the index
  std::int64_t max_sample_bytes = 256 << 20;  ///< a larger sample cannot be read; memory grows with it
  std::filesystem::path cache;                ///< where the index is kept; empty: nowhere
};

/// The samples of a set of shards in the order of shards. Const functions are safe to call from many threads.
class ShardSamples {
 public:
  /// Builds the index, or finds it; what index_shards throws. Warns of shards that are not whole (kSkip).
  ShardSamples(ShardSet set, const ShardOptions& options);

  [[nodiscard]] std::int64_t size() const { return index_.size(); }
  [[nodiscard]] const ShardSet& set() const { return set_; }
  [[nodiscard]] const ShardIndex& index() const { return index_; }
  [[nodiscard]] const ShardFiles& files() const { return files_; }
  /// What read() will hold of it: none when it is too large.
  [[nodiscard]] std::int64_t bytes(std::int64_t sample) const {
    const std::int64_t size = index_.place(sample).size;
    return size > options_.max_sample_bytes ? 0 : size;
  }
  /// "SHARD, sample at byte N", without reading it.
  [[nodiscard]] std::string where(std::int64_t sample) const;
  /// Reads one sample by one read. Throws DataError, naming shard, key and offset, for a missing or doubled
  /// part, text that is not UTF-8 or longer than 4 MiB, JSON that does not hold the field, and what changed
  /// since it was indexed.
  [[nodiscard]] RawSample read(std::int64_t sample) const;

 private:
  ShardSet set_;
  ShardOptions options_;
  ShardFiles files_;
  ShardIndex index_;
};

}  // namespace colonnade::images
