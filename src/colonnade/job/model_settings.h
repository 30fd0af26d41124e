// The model settings of a checkpoint or a Hugging Face folder.
#pragma once

#include <map>
#include <string>

#include "colonnade/checkpoint/load.h"
#include "colonnade/config/run.h"
#include "colonnade/config/schema.h"

namespace colonnade::job {

using TextSettings = std::map<std::string, std::string>;

/// Whether the setting is part of the model's definition; a checkpoint's other settings belong to its run.
bool is_model_setting(const config::Setting& setting);

/// The model settings of a native checkpoint or a Hugging Face folder, by key. Step folders from before
/// --rope-type existed keep their rotary embedding. Throws ConfigError if this version no longer supports it,
/// and for unsupported values in config.json.
TextSettings model_settings(const config::Run& run, const checkpoint::CheckpointReader& source);

}  // namespace colonnade::job
