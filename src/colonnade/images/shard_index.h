// Where the samples of tar shards are, and reading them from there.
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

/// What becomes of that which cannot be read.
enum class OnError { kStop, kSkip };

/// Files that are read at any place by many threads; at most `kMostOpen` of them are open at a time.
class ShardFiles {
 public:
  ShardFiles(const std::filesystem::path& root, const std::vector<std::string>& names);
  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(paths_.size()); }
  [[nodiscard]] const std::filesystem::path& path(std::int64_t shard) const {
    return paths_[static_cast<std::size_t>(shard)];
  }
  /// Fills `out` from `offset` on; returns how much there was. Throws DataError when the file cannot be
  /// opened, Error when the system cannot read it.
  std::size_t read(std::int64_t shard, std::int64_t offset, std::span<char> out) const;
  /// Bytes of the file. Throws as read().
  [[nodiscard]] std::int64_t size(std::int64_t shard) const;

 private:
  struct Open;
  [[nodiscard]] std::shared_ptr<const Open> open(std::int64_t shard) const;

  static constexpr std::size_t kMostOpen = 128;
  std::vector<std::filesystem::path> paths_;
  mutable std::mutex mutex_;              // guards what follows
  mutable std::list<std::int64_t> used_;  // the newest in front
  mutable std::map<std::int64_t, std::pair<std::shared_ptr<const Open>, std::list<std::int64_t>::iterator>>
      open_;
};

/// KEY and PART of a member's name, cut at the first dot behind the last slash; empty for what belongs to no
/// sample: names without a dot or that begin with one, and __NAME__, as WebDataset has them.
std::pair<std::string_view, std::string_view> split_name(std::string_view name);

/// The samples of a set of shards: members that follow each other and have one key. Like Energon's .tar.idx
/// this holds places alone, three numbers a sample, and is built once by reading the headers of all shards.
struct ShardIndex {
  data::IntArray samples;  ///< [n, 3]: shard, first byte, bytes
  data::IntArray
      broken;  ///< [m, 2]: shard, and the byte from which on nothing of it could be read (kSkip alone)
  data::IntArray
      unused;  ///< [2]: files in shards that belong to no sample, and links, which have no contents

  struct Place {
    std::int64_t shard, offset, size;
  };
  [[nodiscard]] std::int64_t size() const { return samples.rows(); }
  [[nodiscard]] Place place(std::int64_t sample) const {
    return {samples[3 * sample], samples[3 * sample + 1], samples[3 * sample + 2]};
  }
};

/// Builds the index, by `threads`, or takes it from the cache. Throws DataError for a damaged shard (with
/// kSkip its whole samples in front of the damage count), for counts other than the metadata's, and when no
/// sample is left.
ShardIndex index_shards(const ShardSet& set, const ShardFiles& files, OnError on_error, int threads,
                        const data::IndexCache& cache);

}  // namespace colonnade::images
