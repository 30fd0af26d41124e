// Files of torch.save: a zip of uncompressed entries, a pickle (data.pkl) and one entry per storage (data/0,
// ...). Source: torch/serialization.py (_save, _load), PKWARE's APPNOTE.TXT (zip and its 64-bit form).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "colonnade/base/files.h"
#include "colonnade/pickle/value.h"

namespace colonnade::checkpoint {

/// A part of a mapped file, which it keeps mapped.
struct MappedBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const MappedFile> map;
};

/// A parsed file of torch.save. A value: copies and tensors share the map.
class TorchFile {
 public:
  /// Parses bytes that hold one file; `source` names it in errors. Throws DataError for a damaged zip,
  /// compressed entries, a pickle with unknown classes (pickle::read) and the format from before torch 1.6.
  TorchFile(MappedBytes bytes, std::string source);
  /// Maps and parses a file.
  static TorchFile open(const std::filesystem::path& path);

  [[nodiscard]] const pickle::Value& root() const { return *document_->root; }
  [[nodiscard]] const std::string& source() const { return source_; }

  /// Whether the value is a tensor.
  static bool is_tensor(const pickle::Value& value);
  /// The tensor that a value of this pickle describes: a view of the map, without a copy. Its address may not
  /// be aligned to its elements (read it with copy_values of load.h). Throws DataError where the value is no
  /// tensor, or its storage does not hold it.
  [[nodiscard]] at::Tensor tensor(const pickle::Value& value) const;

 private:
  std::string source_;
  std::shared_ptr<const MappedFile> map_;
  std::map<std::string, std::span<const std::byte>> storages_;  ///< by the key of their persistent id
  std::shared_ptr<const pickle::Document> document_;
};

/// dtype of a value such as torch.float32 or torch.FloatStorage; nothing for other values.
std::optional<at::ScalarType> torch_dtype(const pickle::Value* value);

/// Name in torch of a dtype: "float32". Throws Error for a dtype that checkpoints do not have.
const char* torch_dtype_name(at::ScalarType dtype);

/// data.pkl of torch.save(tensor) for a contiguous tensor whose data is storage 0.
std::string tensor_pickle(const at::Tensor& tensor);

}  // namespace colonnade::checkpoint
