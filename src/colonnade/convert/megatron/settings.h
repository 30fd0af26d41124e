// Settings of a Megatron run from the args in its checkpoint. Private to convert/megatron.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "colonnade/convert/megatron/source.h"

namespace colonnade::convert::megatron {

/// Values of our settings by key, as text: our keys are Megatron's names of args. Args that describe a model
/// that Colonnade lacks are faults. Throws ConfigError with all of them, naming `folder`.
std::map<std::string, std::string> settings_of(const nlohmann::json& args, const std::string& folder);

/// Whether the args describe a model. Those of weights that were saved without a training run do not.
bool describe_model(const nlohmann::json& args);

/// Args of a NeMo 2 or Megatron Bridge model description (model.yaml, run_config.yaml), under Megatron's
/// names. Throws DataError.
nlohmann::json args_of_yaml(const std::filesystem::path& file);

}  // namespace colonnade::convert::megatron
