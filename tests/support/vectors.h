// Where tests find the recorded vectors and the project's own files.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace colonnade::test {

/// The root of the source tree: for pages, recipes and golden files, which no other set of vectors replaces.
inline std::string sources() { return COLONNADE_SOURCES; }

/// The folder of the recorded vectors: the environment variable COLONNADE_VECTORS, or tests/vectors of the
/// source tree. Another folder of the same form is tried with the same executables.
inline const std::string& vectors() {
  static const std::string folder = [] {
    const char* other = std::getenv("COLONNADE_VECTORS");
    return other == nullptr || *other == '\0' ? sources() + "/tests/vectors"
                                              : std::filesystem::absolute(other).string();
  }();
  return folder;
}

}  // namespace colonnade::test
