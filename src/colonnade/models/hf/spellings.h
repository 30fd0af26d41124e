// Normalizes variants of tensor names in published Hugging Face checkpoints to those of names.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace colonnade::models::hf {

/// Shapes of a checkpoint's tensors by stored name.
using StoredShapes = std::map<std::string, std::vector<std::int64_t>>;

/// Part of a stored tensor that is a tensor of names.h.
struct SpelledTensor {
  std::string stored;
  std::optional<std::int64_t> index;  ///< in dimension 0 of a stored tensor of all experts
  std::int64_t first_row = 0;         ///< with `rows`, in the dimension after that
  std::optional<std::int64_t> rows;   ///< nothing: all rows
};

/// Tensors of a checkpoint of `model_type` by the names of names.h. Unrecognized names stay as they are.
/// Recognized variants, which Transformers 5 reads or wrappers add:
///   with or without the base model's prefix (model., transformer., bert.), after a wrapper's prefix
///   (module., _orig_mod., language_model., base_model.model., ...) LayerNorm.gamma and .beta of early BERTs
///   Mixtral's experts under mlp., and all experts fused in one tensor (mlp.experts.gate_up_proj)
/// Throws DataError, naming the folder `source`, if two stored tensors map to one name.
std::map<std::string, SpelledTensor> spelled_tensors(const std::string& model_type,
                                                     const StoredShapes& stored, const std::string& source);

/// Reason why a checkpoint with the tensors `unknown` is not supported (adapter, quantized weights, image
/// encoder, ...) and a fix; "" if their names give none.
std::string unsupported_tensors(const std::vector<std::string>& unknown);

/// Names of the embedding and output tables in Hugging Face checkpoints.
struct TiedTables {
  std::string embedding;
  std::string output;
  std::vector<std::string> copies = {};  ///< copies of the embeddings, also with an untied output layer
};
/// Tables of `model_type`; nothing for unsupported types.
std::optional<TiedTables> tied_tables(const std::string& model_type);

}  // namespace colonnade::models::hf
