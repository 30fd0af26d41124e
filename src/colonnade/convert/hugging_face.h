// Hugging Face folders with the tensor names of models/hf/names.h, whatever their files spell.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "colonnade/checkpoint/load.h"

namespace colonnade::convert {

/// Source::open_hugging_face with names as models::hf::spelled_tensors brings them to those of names.h.
/// Embeddings that are stored under the name of a tied table alone have their own name too, and a BERT's
/// output bias is that of its decoder, as in Transformers. Throws DataError.
checkpoint::Source open_hugging_face(const std::filesystem::path& folder);

/// Source::open, a Hugging Face folder by open_hugging_face. Collective over `world`.
checkpoint::Source open_weights(const std::filesystem::path& path,
                                std::optional<std::int64_t> step = std::nullopt,
                                const comm::Group& world = {},
                                checkpoint::Check check = checkpoint::Check::kChecksums);

/// Whether two tensors of a source have equal shapes and values. Reads both in pieces of a few megabytes.
bool equal_tensors(const checkpoint::Source& source, const std::string& a, const std::string& b);

}  // namespace colonnade::convert
