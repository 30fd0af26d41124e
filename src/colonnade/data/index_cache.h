// A folder of index arrays that are built once, by whichever process comes first.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/data/npy.h"

namespace colonnade::data {

/// Entries are folders FOLDER/<hash of the description>/ holding description.txt and one NAME.npy per array.
/// An entry is written under a temporary name and renamed, so it is whole or absent. A file lock lets one
/// process build while the others wait; no communication between ranks is needed, and nobody is waited for
/// that has died. Where the folder cannot be written the arrays stay in memory and a warning says so.
class IndexCache {
 public:
  /// An empty folder: nothing is kept.
  explicit IndexCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// The arrays `names` of the entry that `description` stands for: it must hold everything that decides
  /// them. `what` names them in the line that reports a build. A damaged entry is built anew.
  [[nodiscard]] std::vector<IntArray> get(const std::string& what, const std::string& description,
                                          const std::vector<std::string>& names,
                                          const std::function<std::vector<IntArray>()>& build) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace colonnade::data
