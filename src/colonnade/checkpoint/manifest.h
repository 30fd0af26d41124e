// manifest.json: the contents of a step folder. Its last member is the checksum of all bytes before it, so
// that damage to the manifest itself is detected.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/checkpoint/checksum.h"
#include "colonnade/checkpoint/slice.h"

namespace colonnade::checkpoint {

inline constexpr int kFormatVersion = 1;
inline constexpr std::string_view kManifestName = "manifest.json";

/// One box of a tensor, stored as the tensor `key` of the safetensors file `file`.
struct Chunk {
  std::string file;
  std::string key;
  Box box;
};

struct GlobalTensor {
  std::string kind;  ///< "model" or "optimizer"
  at::ScalarType dtype = at::kFloat;
  Sizes shape;
  std::vector<Chunk> chunks;
};

struct Manifest {
  std::int64_t step = 0;
  std::map<std::string, GlobalTensor> tensors;
  std::map<std::string, FileChecksum> files;  ///< every file of the folder except the manifest
  nlohmann::json state;
};

/// Contents of manifest.json, checksum included.
std::string to_text(const Manifest& manifest);

/// Parses and checks a manifest: its checksum and version, that file names are plain and listed, and that the
/// chunks of every tensor cover it once. `path` is for error messages. Throws DataError.
Manifest parse_manifest(std::string_view text, const std::filesystem::path& path);

/// parse_manifest of step_folder/manifest.json. Throws DataError.
Manifest read_manifest(const std::filesystem::path& step_folder);

/// Key of a box in a file: the tensor's name, followed by e.g. "[0:3, 4:8]" unless the box is the full
/// tensor.
std::string chunk_key(const std::string& name, const Sizes& shape, const Box& box);

/// Whether it is a file name without folders, so that it cannot lead out of the checkpoint.
bool is_plain_name(const std::string& name);

}  // namespace colonnade::checkpoint
