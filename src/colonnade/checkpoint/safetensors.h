// Safetensors files: read through a memory map after linear-time validation, written as a stream.
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

/// "F32" for at::kFloat and so on. Throws Error for a dtype that safetensors does not have.
std::string_view dtype_name(at::ScalarType type);
/// Inverse of dtype_name; nothing for an unknown name.
std::optional<at::ScalarType> dtype_of(std::string_view name);

/// Location of a tensor: `bytes` bytes at byte `offset` of the file `file`.
struct TensorInfo {
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape;
  std::string file;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

using Metadata = std::map<std::string, std::string>;

/// A validated header: at most 100 MB, no unknown or duplicate key, known dtypes, the bytes of every tensor
/// match its shape, and the tensors cover the data without overlap, gap or rest. Offsets are from the start
/// of the file.
struct SafetensorsHeader {
  std::map<std::string, TensorInfo> tensors;
  Metadata metadata;
};

/// Parses and validates the header of a full file in `bytes`; `path` is for error messages and
/// TensorInfo::file. Throws DataError with the broken rule, for any bytes.
SafetensorsHeader parse_safetensors(std::span<const std::byte> bytes, const std::filesystem::path& path);

/// An open file. A value: copies and the returned tensors share the map.
class SafetensorsFile {
 public:
  /// Maps and validates `path`. Throws DataError.
  explicit SafetensorsFile(const std::filesystem::path& path);

  [[nodiscard]] const std::map<std::string, TensorInfo>& tensors() const { return header_.tensors; }
  [[nodiscard]] const Metadata& metadata() const { return header_.metadata; }
  [[nodiscard]] bool has(const std::string& name) const { return header_.tensors.contains(name); }
  /// Throws DataError with the file's name when there is no such tensor.
  [[nodiscard]] const TensorInfo& info(const std::string& name) const;
  /// A tensor in the map, without a copy (with one where the file does not align it to its element size).
  /// Read only: writing to it faults. It keeps the map alive.
  [[nodiscard]] at::Tensor view(const std::string& name) const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<const MappedFile> map_;
  SafetensorsHeader header_;
};

/// A tensor to write: the header is written before any data.
struct TensorSpec {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape;
};

/// Order of tensors in a file: larger elements first, then by name, so that every tensor is aligned to its
/// element size.
bool file_order(const TensorSpec& a, const TensorSpec& b);

/// Writes one file sequentially. Disk space is allocated at construction, so a full disk fails early. Errors
/// (full disk, read-only folder, file too large) throw Error with path and reason; the caller removes a
/// partial file.
class SafetensorsWriter {
 public:
  /// Creates `path` (truncating it) and writes the header. `tensors` in file_order.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorSpec>& tensors,
                    const Metadata& metadata = {{"format", "pt"}});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// Writes the next tensor, on any device and with any strides; contiguous CPU memory is written without a
  /// copy.
  void write(const at::Tensor& tensor);
  /// Syncs and closes. Every tensor must have been written.
  FileChecksum finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Writes a small set of tensors to `path` in one call (logits, test data), atomically by a rename.
void write_safetensors(const std::filesystem::path& path, const std::map<std::string, at::Tensor>& tensors,
                       const Metadata& metadata = {{"format", "pt"}});

}  // namespace colonnade::checkpoint
