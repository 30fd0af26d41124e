// Spellings of tensor names in published Hugging Face folders, brought to the one that names.h has.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace colonnade::models::hf {

/// The shapes of a folder's tensors, by the names in its files.
using StoredShapes = std::map<std::string, std::vector<std::int64_t>>;

/// A tensor as names.h names it is this part of a stored one.
struct SpelledTensor {
  std::string stored;
  std::optional<std::int64_t> expert;  ///< index of the stored tensor's dimension 0
  std::int64_t first_row = 0;          ///< with `rows`: of the dimension after it
  std::optional<std::int64_t> rows;    ///< nothing: all
};

/// The tensors of a folder whose config.json says `model_type`, by the names of names.h where the spelling is
/// one that Transformers 5 reads or a wrapper adds, by their own else:
///   with or without the base model's prefix (model., transformer., bert.), and behind a wrapper's prefix
///   (module., _orig_mod., language_model., base_model.model., ...)
///   LayerNorm.gamma and .beta of the first BERTs
///   experts of Mixtral under mlp., and experts of all in one tensor (mlp.experts.gate_up_proj)
/// Throws DataError, for the folder `source`, where two stored tensors are spellings of one name.
std::map<std::string, SpelledTensor> spelled_tensors(const std::string& model_type,
                                                     const StoredShapes& stored, const std::string& source);

/// Why tensors of the names `unknown` are no model's that is read: an adapter's, quantized ones, an image
/// encoder's, ... with a fix; "" where their names say nothing of it.
std::string foreign_tensors(const std::vector<std::string>& unknown);

/// The embeddings and the output layer under their names in Hugging Face folders.
struct TiedTables {
  std::string embedding;
  std::string output;
  std::vector<std::string> copies = {};  ///< of the embeddings, whether the output layer is tied or not
};
/// By `model_type`; nothing for types that are not read.
std::optional<TiedTables> tied_tables(const std::string& model_type);

}  // namespace colonnade::models::hf
