// config.json of T5 1.1 and its kin, both ways. Private to models/hf.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "colonnade/config/model.h"

namespace colonnade::models::hf {

/// Of a model whose family is Family::kT5, without its type of weights.
nlohmann::json t5_config(const config::Model& model);

/// Throws ConfigError for what our T5 does not have. `scale_decoder_outputs`, where it is missing, is what
/// Transformers 4 does: scaled where the output layer is tied.
std::map<std::string, std::string> t5_settings(const nlohmann::json& config, const std::string& source);

}  // namespace colonnade::models::hf
