// Names of our models' tensors in Hugging Face checkpoints.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/layout/param.h"

namespace colonnade::models::hf {

/// A Hugging Face architecture whose tensors can hold a model exactly (family.h); families/list.h has all.
struct Family;

/// The family that can express `model`; null if none can (checkpoints then use our names). Load balancing
/// (losses, jitter, capacity) is a training setting and does not affect the family.
const Family* family_of(const config::Model& model);

/// The family that reads config.json of `model_type`; null if none does.
const Family* family_of_type(std::string_view model_type);

/// A tensor of a Hugging Face checkpoint and the rows of our parameter, or of parameter[index], that it
/// holds.
struct StoredTensor {
  std::string name;
  std::int64_t first_row = 0;  ///< in dimension 0 of the parameter or of parameter[index]
  std::int64_t rows = 0;
  bool transposed = false;            ///< stored as [in, out] (GPT-2's Conv1D), or [experts, in, out]
  std::optional<std::int64_t> index;  ///< in dimension 0 of a parameter of all experts
  bool has_leading_one = false;       ///< stored as [1, ...]
};

/// A family and the model's number of layers, after which its checkpoints number MTP layers.
struct Naming {
  Naming(const Family* family, std::int64_t layers = 0)
      : family(family), layers(layers) {}  // NOLINT: implicit conversion from Family*
  const Family* family;
  std::int64_t layers;
};
/// Naming of family_of(model).
std::optional<Naming> naming_of(const config::Model& model);

/// Checkpoint tensors that hold `spec`; without `naming` one tensor under our own name.
std::vector<StoredTensor> tensors_of(const layout::ParamSpec& spec, std::optional<Naming> naming);

/// A checkpoint tensor that duplicates another one.
struct Copy {
  std::string name;
  std::string original;
  bool is_read = false;  ///< Transformers reads the copy: it may differ from the original
};

/// Copies that a checkpoint of `model` must hold because Transformers reads both: the output bias of a BERT
/// with an untied output layer.
std::vector<Copy> copies_to_save(const config::Model& model);

/// Copies in checkpoints of `model_type` that Transformers reads in place of their originals.
std::vector<Copy> copies_to_read(const std::string& model_type);

/// Differences between the tensors of a checkpoint and those of a model.
struct TensorDiff {
  std::vector<std::string> unknown;  ///< unexpected tensors that may affect the model's output
  std::vector<std::string> missing;  ///< tensors of the model that the checkpoint lacks
  std::vector<Copy> copies;          ///< copies, except a tied output layer
  /// Tensors that do not affect the model's output, by kind in the plural: "buffers".
  std::map<std::string, std::vector<std::string>> unused;
};
/// `names`: all tensors of a checkpoint of the model's family. Tied output layers count as known.
TensorDiff tensor_diff(const config::Model& model, const std::vector<std::string>& names);

}  // namespace colonnade::models::hf
