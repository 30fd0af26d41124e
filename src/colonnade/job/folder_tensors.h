// Comparison of the tensors in a Hugging Face folder with the model that its config.json describes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "colonnade/checkpoint/load.h"
#include "colonnade/config/model.h"

namespace colonnade::job {

/// Unties an output layer whose stored values differ from the embeddings, whatever config.json says, as
/// Transformers does. Corrects `settings` (those of the folder's config.json) and returns a note, "" where
/// nothing changes.
std::string untie_stored_output(std::map<std::string, std::string>& settings,
                                const checkpoint::CheckpointReader& source);

/// Throws DataError where a Hugging Face folder lacks tensors of the model, holds unknown ones, or holds
/// copies that differ from their originals. With `logs_unread` logs the files and tensors that are not read.
/// A native checkpoint passes: its settings describe its model.
void require_model_tensors(const checkpoint::CheckpointReader& source, const config::Model& model,
                           bool logs_unread);

}  // namespace colonnade::job
