// Safetensors files: read through a memory map after linear-time checks, written as a stream.
// Layout: u64 little-endian header length, a JSON header {name: {dtype, shape, data_offsets}}, data.
// Source: github.com/huggingface/safetensors, README "Format".
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/base/files.h"
#include "colonnade/checkpoint/checksum.h"

namespace colonnade::checkpoint {

/// "F32" for at::kFloat and so on. Throws Error for a type that safetensors has no name for.
std::string_view dtype_name(at::ScalarType type);
/// The inverse; nothing for an unknown name.
std::optional<at::ScalarType> dtype_of(std::string_view name);

/// Where a tensor lies: `bytes` bytes from byte `offset` of the file `file`.
struct TensorInfo {
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape;
  std::string file;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

using Metadata = std::map<std::string, std::string>;

/// What a header says, checked: the header has at most 100 MB and no unknown or doubled key, every
/// dtype is known, the bytes of every tensor are what its shape asks for, and the tensors cover the
/// data part without overlap, hole or rest. Offsets are counted from the beginning of the file.
struct SafetensorsHeader {
  std::map<std::string, TensorInfo> tensors;
  Metadata metadata;
};

/// Parses and checks the header of a whole file that lies at `bytes`; `path` is for messages and
/// TensorInfo::file. Throws DataError that says which rule is broken, for any bytes.
SafetensorsHeader parse_safetensors(std::span<const std::byte> bytes, const std::filesystem::path& path);

/// An open file. A value: copies and the tensors handed out share the map.
class SafetensorsFile {
 public:
  /// Maps and checks `path`. Throws DataError.
  explicit SafetensorsFile(const std::filesystem::path& path);

  [[nodiscard]] const std::map<std::string, TensorInfo>& tensors() const { return header_.tensors; }
  [[nodiscard]] const Metadata& metadata() const { return header_.metadata; }
  [[nodiscard]] bool has(const std::string& name) const { return header_.tensors.contains(name); }
  /// Throws DataError naming the file when there is no such tensor.
  [[nodiscard]] const TensorInfo& info(const std::string& name) const;
  /// The tensor in the map, without a copy (a copy only where the file does not align it to its
  /// element size). Read only: writing to it is a fault. It keeps the map alive.
  [[nodiscard]] at::Tensor view(const std::string& name) const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<const MappedFile> map_;
  SafetensorsHeader header_;
};

/// A tensor to be written: the header is known before any data.
struct TensorSpec {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape;
};

/// True when `a` comes before `b` in a file: larger elements first, then by name, so that every
/// tensor is aligned to its element size.
bool file_order(const TensorSpec& a, const TensorSpec& b);

/// Writes one file front to back. Disk space is taken when it is made, so a full disk shows early.
/// Errors (full disk, read-only folder, file too large): Error naming path and reason; a file begun is
/// left for the caller to remove.
class SafetensorsWriter {
 public:
  /// Creates `path` (truncating it) and writes the header. `tensors` in file_order.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorSpec>& tensors,
                    const Metadata& metadata = {{"format", "pt"}});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// Writes the next tensor: any device and strides; contiguous CPU memory goes out without a copy.
  void write(const at::Tensor& tensor);
  /// Syncs and closes. Every tensor must have been written.
  FileSum finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Writes a small set of tensors to `path` in one call (logits, test data): staged and renamed.
void write_safetensors(const std::filesystem::path& path, const std::map<std::string, at::Tensor>& tensors,
                       const Metadata& metadata = {{"format", "pt"}});

}  // namespace colonnade::checkpoint
