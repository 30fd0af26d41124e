// manifest.json: what a step folder holds. Its last member is the checksum of all bytes before it, so
// that damage of the manifest itself is seen.
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

/// A box of a tensor: the tensor `key` of the safetensors file `file`.
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
  std::map<std::string, FileSum> files;  ///< every file of the folder but the manifest
  nlohmann::json state;
};

/// The text of the file, checksum included.
std::string to_text(const Manifest& manifest);

/// Parses and checks a manifest: its checksum, its version, that names of files are plain and listed,
/// and that the chunks of every tensor cover it once. `path` is for messages. Throws DataError.
Manifest parse_manifest(std::string_view text, const std::filesystem::path& path);

/// parse_manifest of step_folder/manifest.json. Throws DataError.
Manifest read_manifest(const std::filesystem::path& step_folder);

/// The name of a box in a file of chunks: the tensor's name, and "[0:3, 4:8]" behind it unless whole.
std::string chunk_key(const std::string& name, const Sizes& shape, const Box& box);

/// A file name without any folder: nothing that could lead out of the checkpoint.
bool is_plain_name(const std::string& name);

}  // namespace colonnade::checkpoint
