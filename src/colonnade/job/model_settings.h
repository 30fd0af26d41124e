// Which settings a checkpoint or a Hugging Face folder decides, and what it says of them.
#pragma once

#include <map>
#include <string>

#include "colonnade/checkpoint/load.h"
#include "colonnade/config/run.h"
#include "colonnade/config/schema.h"

namespace colonnade::job {

using TextSettings = std::map<std::string, std::string>;

/// Whether the setting says what the model computes; a checkpoint's values of the others belong to its run.
bool says_what_the_model_is(const config::Setting& setting);

/// The settings of the model in a native checkpoint or a Hugging Face folder, by key. Step folders that were
/// written before --rope-type existed keep their rotary embedding. Throws ConfigError for weights of a rotary
/// embedding that multi-latent attention no longer has, and for what config.json says that is not supported.
TextSettings model_settings(const config::Run& run, const checkpoint::Source& source);

}  // namespace colonnade::job
