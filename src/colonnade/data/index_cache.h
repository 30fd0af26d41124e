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

/// Entries are folders FOLDER/<hash of the description>/ holding description.txt and one NAME.npy per array.
/// An entry is written under a temporary name (HASH.part-HOST-PID) and renamed, so it is whole or absent;
/// what a killed build has left is removed by the next one. A file lock lets one process build while the
/// others wait; no communication between ranks is needed, and nobody is waited for that has died. Who builds
/// maps the files in the end, as the others: a machine holds the arrays once. Where the folder cannot be
/// written they stay in memory and a warning says so.
class IndexCache {
 public:
  /// An empty folder: nothing is kept. Every `period` of a build a line says that it goes on.
  explicit IndexCache(std::filesystem::path folder,
                      std::chrono::milliseconds period = std::chrono::seconds(5))
      : folder_(std::move(folder)), period_(period) {}

  /// The arrays `names` of the entry that `description` stands for: it must hold everything that decides
  /// them. `what` names them in the lines that report a build. A damaged entry is built anew. Who builds and
  /// who waits shows signs of life on the page of progress.
  [[nodiscard]] std::vector<IntArray> get(const std::string& what, const std::string& description,
                                          const std::vector<std::string>& names,
                                          const std::function<std::vector<IntArray>()>& build) const;

  /// As get. `build` may write arrays itself, as STAGED/NAME.npy (IntWriter), and give them back mapped from
  /// there, so that they never lie in memory. `staged` is empty where nothing can be kept.
  [[nodiscard]] std::vector<IntArray> get_written(
      const std::string& what, const std::string& description, const std::vector<std::string>& names,
      const std::function<std::vector<IntArray>(const std::filesystem::path& staged)>& build) const;

 private:
  std::filesystem::path folder_;
  std::chrono::milliseconds period_;
};

}  // namespace colonnade::data
