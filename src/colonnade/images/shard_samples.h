// Samples of tar shards: image bytes and texts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "colonnade/images/shard_index.h"

namespace colonnade::images {

/// A sample as stored in its shard.
struct RawSample {
  std::string where;  ///< "SHARD, sample KEY at byte N", for messages
  std::string shard = {};
  std::string key = {};
  std::int64_t offset = 0;  ///< byte offset of its first header in the shard
  std::string bytes = {};   ///< its bytes in the shard, including headers
  std::size_t image_at = 0, image_size = 0;
  std::string prompt = {};                ///< VQASample's context; else empty
  std::vector<std::string> answers = {};  ///< the caption, or VQASample's answers; at least one

  /// Contents of the JPEG or PNG file.
  [[nodiscard]] std::span<const char> image() const { return std::span(bytes).subspan(image_at, image_size); }
};

struct ShardOptions {
  OnError on_error = OnError::kStop;
  int threads = 1;                            ///< threads that build the index
  std::int64_t max_sample_bytes = 256 << 20;  ///< maximum size of a readable sample; memory grows with it
  std::filesystem::path cache;                ///< folder of the index; empty: not cached
};

/// The samples of a set of shards in shard order. Const functions are thread-safe.
class ShardSamples {
 public:
  /// Builds or loads the index. Throws like index_shards. Warns of incomplete shards (kSkip).
  ShardSamples(ShardSet set, const ShardOptions& options);

  [[nodiscard]] std::int64_t size() const { return index_.size(); }
  [[nodiscard]] const ShardSet& set() const { return set_; }
  [[nodiscard]] const ShardIndex& index() const { return index_; }
  [[nodiscard]] const ShardFiles& files() const { return files_; }
  /// Bytes that read() will hold; 0 for an oversized sample.
  [[nodiscard]] std::int64_t bytes(std::int64_t sample) const {
    const std::int64_t size = index_.position(sample).size;
    return size > options_.max_sample_bytes ? 0 : size;
  }
  /// "SHARD, sample at byte N", without reading it.
  [[nodiscard]] std::string where(std::int64_t sample) const;
  /// Reads one sample with a single read. Throws DataError with shard, key and offset for a missing or
  /// duplicate part, text that is not UTF-8 or longer than 4 MiB, JSON without the field, and a shard that
  /// changed after indexing.
  [[nodiscard]] RawSample read(std::int64_t sample) const;

 private:
  ShardSet set_;
  ShardOptions options_;
  ShardFiles files_;
  ShardIndex index_;
};

}  // namespace colonnade::images
