// The tensors of a Hugging Face folder beside the model that its config.json describes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "colonnade/checkpoint/load.h"
#include "colonnade/config/model.h"

namespace colonnade::job {

/// As Transformers does: an output layer that is stored with other values than the embeddings is not tied to
/// them, whatever config.json says. Corrects `settings` (those of its config.json) and returns a note on it,
/// "" where nothing changes.
std::string untie_stored_output(std::map<std::string, std::string>& settings,
                                const checkpoint::Source& source);

/// Throws DataError where a Hugging Face folder lacks tensors of the model, holds unknown ones, or holds
/// copies that differ from their originals; `reports` logs what else is not read. A native checkpoint passes:
/// its settings say what the model is.
void check_taken(const checkpoint::Source& source, const config::Model& model, bool reports);

}  // namespace colonnade::job
