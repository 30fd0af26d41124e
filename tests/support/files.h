// Paths and tensors of recorded vectors, temporary folders, and exception messages.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "colonnade/base/files.h"
#include "support/vectors.h"

namespace colonnade::test {

inline std::string vector_path(const std::string& name) { return vectors() + "/" + name; }

/// Every tensor of a .safetensors file as doubles, in C order.
inline std::map<std::string, std::vector<double>> read_tensors(const std::string& name) {
  const std::string all = read_file(vector_path(name));
  std::uint64_t size = 0;
  std::memcpy(&size, all.data(), 8);
  const auto header = nlohmann::json::parse(all.substr(8, size));
  std::map<std::string, std::vector<double>> tensors;
  for (const auto& [key, value] : header.items()) {
    if (key == "__metadata__") continue;
    const char* at = all.data() + 8 + size + value["data_offsets"][0].get<std::size_t>();
    const char* end = all.data() + 8 + size + value["data_offsets"][1].get<std::size_t>();
    std::vector<double>& values = tensors[key];
    const auto read = [&]<typename T>(T element) {
      for (; at < end; at += sizeof(T)) {
        std::memcpy(&element, at, sizeof(T));
        values.push_back(static_cast<double>(element));
      }
    };
    const std::string type = value["dtype"];
    if (type == "I64") read(std::int64_t{});
    if (type == "I32") read(std::int32_t{});
    if (type == "I16") read(std::int16_t{});
    if (type == "U8") read(std::uint8_t{});
    if (type == "F32") read(float{});
  }
  return tensors;
}

/// A new folder, removed with its contents on destruction.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "colonnade_data_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  [[nodiscard]] std::size_t num_files() const {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::recursive_directory_iterator(path_)) ++count;
    return count;
  }

 private:
  std::filesystem::path path_;
};

/// Message of the E thrown by `run`; "" if none.
template <typename E, typename F>
std::string message_of(F&& run) {
  try {
    run();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

}  // namespace colonnade::test
