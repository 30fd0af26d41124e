// A folder of index arrays that are built once, by whichever process comes first.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/data/npy.h"

namespace colonnade::data {

/// What an entry of a cache is, and which state of the data it belongs to.
struct CacheKey {
  std::string kind;         ///< follows the hash in names of files: "GPTDataset-train"
  std::string description;  ///< decides what the arrays are; its MD5 begins the names of files
  std::string state;  ///< of the data, and where they are: an entry of another is checked, or built anew
  std::string settings = {};  ///< what decides the arrays besides description and data; follows the state
  std::filesystem::file_time_type changed = std::filesystem::file_time_type::min();  ///< when the data did
  /// Throws DataError for arrays that cannot be those of data and settings. Empty: none are taken but those
  /// whose state is the same.
  std::function<void(const std::vector<IntArray>&)> check = {};
};

/// The files of an entry are those of Megatron Core: FOLDER/<MD5 of the description>-<kind>-description.txt
/// and one ...-NAME.npy per array. Beside them lies one of ours, ...-colonnade.txt: the number of the build,
/// and behind an empty line the state of the data and the settings, several of them where copies of the data
/// share the folder, 1024 at most. An entry that has the state is mapped, without a lock, its own first, then
/// one that other words for the same paths name. Any other is judged under the lock: one without a state was
/// written by Megatron and is taken where it is no older than the data and passes CacheKey::check; one of
/// other data and the same settings is taken where it passes; then it gets the state too.
/// New files are written in a folder of their own (...part-HOST-TID) and renamed, the description last,
/// without which there is no entry, to Megatron neither; what a killed build has left is removed by the next
/// one. A file lock lets one process judge or build while the others wait; no communication between ranks is
/// needed, and nobody is waited for that has died. Who builds maps the files in the end, as the others: a
/// machine holds the arrays once. Where the folder cannot be written they stay in memory and a warning says
/// so.
class IndexCache {
 public:
  /// An empty folder: nothing is kept. Every `period` of a build a line says that it goes on.
  explicit IndexCache(std::filesystem::path folder,
                      std::chrono::milliseconds period = std::chrono::seconds(5))
      : folder_(std::move(folder)), period_(period) {}

  /// The arrays `names` of the entry. `what` names them in the lines that report a build. A damaged entry is
  /// built anew. Who builds and who waits shows signs of life on the page of progress.
  [[nodiscard]] std::vector<IntArray> get(const std::string& what, const CacheKey& key,
                                          const std::vector<std::string>& names,
                                          const std::function<std::vector<IntArray>()>& build) const;

  /// As get. `build` may write arrays itself, as STAGED/NAME.npy (IntWriter), and give them back mapped from
  /// there, so that they never lie in memory. `staged` is empty where nothing can be kept.
  [[nodiscard]] std::vector<IntArray> get_written(
      const std::string& what, const CacheKey& key, const std::vector<std::string>& names,
      const std::function<std::vector<IntArray>(const std::filesystem::path& staged)>& build) const;

 private:
  std::filesystem::path folder_;
  std::chrono::milliseconds period_;
};

}  // namespace colonnade::data
