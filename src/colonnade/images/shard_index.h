// Index of the samples in tar shards, and random access to the shards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/data/index_cache.h"
#include "colonnade/data/npy.h"
#include "colonnade/images/shards.h"

namespace colonnade::images {

/// Handling of unreadable shards and samples.
enum class OnError { kStop, kSkip };

/// Thread-safe random access to files; at most `kMostOpen` of them are open at a time.
class ShardFiles {
 public:
  ShardFiles(const std::filesystem::path& root, const std::vector<std::string>& names);
  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(paths_.size()); }
  [[nodiscard]] const std::filesystem::path& path(std::int64_t shard) const {
    return paths_[static_cast<std::size_t>(shard)];
  }
  /// Fills `out` from `offset` on; returns the number of bytes read. Throws DataError if the file cannot be
  /// opened, Error if the system cannot read it.
  std::size_t read(std::int64_t shard, std::int64_t offset, std::span<char> out) const;
  /// File size in bytes. Throws like read().
  [[nodiscard]] std::int64_t size(std::int64_t shard) const;

 private:
  struct Open;
  [[nodiscard]] std::shared_ptr<const Open> open(std::int64_t shard) const;

  static constexpr std::size_t kMostOpen = 128;
  std::vector<std::filesystem::path> paths_;
  mutable std::mutex mutex_;              // guards the members below
  mutable std::list<std::int64_t> used_;  // most recently used first
  mutable std::map<std::int64_t, std::pair<std::shared_ptr<const Open>, std::list<std::int64_t>::iterator>>
      open_;
};

/// Splits a member's name at the first dot after the last slash into KEY and PART. Both are empty if the
/// member belongs to no sample: names without a dot or starting with one, and __NAME__, as in WebDataset.
std::pair<std::string_view, std::string_view> split_name(std::string_view name);

/// The samples of a set of shards: consecutive members with the same key. Like Energon's .tar.idx it holds
/// only positions, three numbers per sample, and is built once by reading the headers of all shards.
struct ShardIndex {
  data::IntArray samples;  ///< [n, 3]: shard, byte offset, bytes
  data::IntArray broken;   ///< [m, 2]: shard, and byte offset from which it is unreadable (only with kSkip)
  data::IntArray
      unused;  ///< [2]: number of files that belong to no sample, and of links, which have no contents

  struct Position {
    std::int64_t shard, offset, size;
  };
  [[nodiscard]] std::int64_t size() const { return samples.rows(); }
  [[nodiscard]] Position position(std::int64_t sample) const {
    return {samples[3 * sample], samples[3 * sample + 1], samples[3 * sample + 2]};
  }
};

/// Builds the index with `threads` threads, or loads it from the cache. Throws DataError for a damaged shard
/// (with kSkip its complete samples before the damage are used), for counts that differ from the metadata,
/// and if there is no sample.
ShardIndex index_shards(const ShardSet& set, const ShardFiles& files, OnError on_error, int threads,
                        const data::IndexCache& cache);

}  // namespace colonnade::images
