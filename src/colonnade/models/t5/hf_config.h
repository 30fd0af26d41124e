// config.json of T5 1.1 and its kin, both ways. Called by models/gpt/hf_config.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "colonnade/config/model.h"

namespace colonnade::models::t5 {

/// Of a model whose family is HfFamily::kT5, without its type of weights.
nlohmann::json hf_config(const config::Model& model);

/// Throws ConfigError for what our T5 does not have. `scale_decoder_outputs`, where it is missing, is what
/// Transformers 4 does: scaled where the output layer is tied.
std::map<std::string, std::string> settings_of(const nlohmann::json& hf_config, const std::string& source);

}  // namespace colonnade::models::t5
