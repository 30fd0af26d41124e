// Files of tests/vectors/images, and helpers that build tar shards.
#pragma once

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "colonnade/base/files.h"
#include "support/files.h"

namespace colonnade::images {

inline std::string image_bytes(const std::string& name) {
  return read_file(test::vector_path("images/" + name));
}

inline std::vector<std::string> image_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(test::vector_path("images")))
    if (const auto end = entry.path().extension(); end == ".jpg" || end == ".png")
      names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// A ustar header of 512 bytes with a valid checksum.
inline std::string tar_header(const std::string& name, const std::string& size_field, char type = '0') {
  std::string block(512, '\0');
  block.replace(0, std::min<std::size_t>(name.size(), 100), name.substr(0, 100));
  block.replace(100, 7, "0000644");
  block.replace(124, size_field.size(), size_field);
  block.replace(136, 11, "00000000000");
  block[156] = type;
  block.replace(257, 5, "ustar");
  block.replace(263, 2, "00");
  block.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  block.replace(148, 7, fmt::format("{:06o}", sum) + std::string(1, '\0'));
  return block;
}

inline std::string octal(std::size_t size) { return fmt::format("{:011o}", size); }

/// Header and contents, padded to whole blocks.
inline std::string tar_member(const std::string& name, const std::string& content, char type = '0') {
  std::string bytes = tar_header(name, octal(content.size()), type) + content;
  bytes.resize((bytes.size() + 511) / 512 * 512, '\0');
  return bytes;
}

inline std::string tar_end() { return std::string(1024, '\0'); }

inline void write(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace colonnade::images
