// Helpers of the fuzz targets: input as files, and the check of exceptions.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "colonnade/base/error.h"

namespace colonnade::fuzz {

/// A temporary folder of this process, in memory if /dev/shm exists.
inline std::filesystem::path folder() {
  static const std::filesystem::path made = [] {
    std::string name = std::filesystem::is_directory("/dev/shm") ? "/dev/shm/colonnade_fuzz_XXXXXX"
                                                                 : "/tmp/colonnade_fuzz_XXXXXX";
    if (mkdtemp(name.data()) == nullptr) abort();
    return std::filesystem::path(name);
  }();
  return made;
}

/// Writes a file in folder() and returns its path.
inline std::string file(const char* name, std::string_view bytes) {
  const std::string path = (folder() / name).string();
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path;
}

/// Runs `read`, which must return or throw an Error with a message for any input. Anything else is a finding.
template <typename Read>
int run(const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    if (std::string_view(error.what()).empty()) abort();
  }
  return 0;
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};  // NOLINT(cppcoreguidelines-pro-type-reinterpret-cast)
}

}  // namespace colonnade::fuzz
