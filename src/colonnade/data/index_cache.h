// Cache of index arrays on disk, each built once by the first process that needs it.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/data/npy.h"

namespace colonnade::data {

/// Fingerprint of a file: "PATH N bytes, changed T\n".
std::string file_fingerprint(const std::filesystem::path& path);

/// Identity of a cache entry.
struct CacheKey {
  std::string kind;           ///< follows the hash in file names, such as "GPTDataset-train"
  std::string description;    ///< determines the arrays; its MD5 starts the file names
  std::string fingerprint;    ///< of the data files; an entry with another one is validated or rebuilt
  std::string settings = {};  ///< other inputs of the arrays; appended to the fingerprint
  std::filesystem::file_time_type changed =
      std::filesystem::file_time_type::min();  ///< data's last write time
  /// Throws DataError for arrays that do not match data and settings. If empty, only entries with an equal
  /// fingerprint are used.
  std::function<void(const std::vector<IntArray>&)> check = {};
};

/// Index arrays in a folder, compatible with Megatron Core.
///
/// Files of an entry: FOLDER/<MD5 of the description>-<kind>-description.txt and one ...-NAME.npy per array,
/// as Megatron Core writes them, and our ...-colonnade.txt: the build id and, separated by empty lines, the
/// fingerprints of data and settings (up to 1024, for copies of the data that share the folder).
/// Lookup: an entry with the key's fingerprint is mapped without a lock, first under its own name, then under
/// other spellings of the same paths. Any other entry is validated under the lock and, if valid, gets the
/// key's fingerprint. An entry without fingerprints was written by Megatron: it must not be older than the
/// data and must pass CacheKey::check. An entry of other data with the same settings must pass the check.
/// Build: files are written to a staging folder (...part-HOST-TID) and renamed, the description last; without
/// it neither we nor Megatron see an entry. The next build removes the remains of killed ones. A file lock
/// lets one process validate or build while the others wait; it needs no communication between ranks and is
/// released when its holder dies. The builder maps the files too, so a machine holds the arrays once. If the
/// folder is not writable, the arrays stay in memory and a warning is logged.
class IndexCache {
 public:
  /// An empty `folder` disables the cache, as for mock data. A build logs a heartbeat every `period`.
  explicit IndexCache(std::filesystem::path folder,
                      std::chrono::milliseconds period = std::chrono::seconds(5))
      : folder_(std::move(folder)), period_(period) {}

  /// The arrays `names` of the entry, called `what` in log lines. A damaged entry is rebuilt. Building and
  /// waiting processes send heartbeats to the progress page.
  [[nodiscard]] std::vector<IntArray> get(const std::string& what, const CacheKey& key,
                                          const std::vector<std::string>& names,
                                          const std::function<std::vector<IntArray>()>& build) const;

  /// Same as get, but `build` may stream arrays to STAGED/NAME.npy (IntWriter) and return them mapped, so
  /// that they are never held in memory. `staged` is empty if nothing can be cached.
  [[nodiscard]] std::vector<IntArray> get_streamed(
      const std::string& what, const CacheKey& key, const std::vector<std::string>& names,
      const std::function<std::vector<IntArray>(const std::filesystem::path& staged)>& build) const;

 private:
  std::filesystem::path folder_;
  std::chrono::milliseconds period_;
};

}  // namespace colonnade::data
