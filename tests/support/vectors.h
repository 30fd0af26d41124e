// Locations of recorded vectors and source files for tests.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace colonnade::test {

/// Root of the source tree, for docs, recipes and golden files.
inline std::string sources() { return COLONNADE_SOURCES; }

/// Folder of the recorded vectors: the environment variable COLONNADE_VECTORS, or tests/vectors of the source
/// tree. The variable selects another set for the same executables.
inline const std::string& vectors() {
  static const std::string folder = [] {
    const char* other = std::getenv("COLONNADE_VECTORS");
    return other == nullptr || *other == '\0' ? sources() + "/tests/vectors"
                                              : std::filesystem::absolute(other).string();
  }();
  return folder;
}

}  // namespace colonnade::test
