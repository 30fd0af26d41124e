// Independent safetensors reader for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace colonnade::test {

using Values = std::map<std::string, std::vector<float>>;

/// Adds the fp32 tensors of a file: 8 bytes with the length of a JSON header, the header, the bytes.
inline void read_tensor_file(const std::filesystem::path& path, Values& into) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const auto header = nlohmann::json::parse(bytes.substr(sizeof length, length));
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__" || tensor.at("dtype") != "F32") continue;
    const std::size_t begin = tensor.at("data_offsets").at(0), end = tensor.at("data_offsets").at(1);
    std::vector<float>& values = into[name];
    values.resize((end - begin) / sizeof(float));
    std::memcpy(values.data(), bytes.data() + sizeof length + length + begin, end - begin);
  }
}

/// Tensors of all files in `folder` whose names begin with `prefix`.
inline Values read_tensor_files(const std::filesystem::path& folder, const std::string& prefix) {
  Values values;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(".safetensors")) read_tensor_file(entry.path(), values);
  }
  return values;
}

}  // namespace colonnade::test
