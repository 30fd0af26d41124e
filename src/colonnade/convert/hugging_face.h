// Opens Hugging Face checkpoints with the tensor names of models/hf/names.h, whatever their variant.
#pragma once

#include <filesystem>
#include <string>

#include "colonnade/checkpoint/load.h"

namespace colonnade::convert {

/// CheckpointReader::open_hugging_face with names normalized by models::hf::spelled_tensors. Embeddings
/// stored only under the name of a tied table are added under their own name, and a BERT's output bias is its
/// decoder's, as in Transformers. Throws DataError.
checkpoint::CheckpointReader open_hugging_face(const std::filesystem::path& folder);

/// Whether two tensors of a source have equal shapes and values. Reads both in chunks of a few megabytes.
bool equal_tensors(const checkpoint::CheckpointReader& source, const std::string& a, const std::string& b);

}  // namespace colonnade::convert
