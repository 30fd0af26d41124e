// Conversion between Hugging Face's config.json and our model settings.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "colonnade/config/model.h"

namespace colonnade::models::hf {

/// model_type of a config.json; "" if it is missing or no string.
std::string model_type_of(const nlohmann::json& config);

/// config.json of `model`; null if no Family can express it.
nlohmann::json config_of(const config::Model& model);

/// Settings (schema keys) equivalent to a Family's config.json as Transformers 4 or 5 writes it. `tensors`:
/// tensor names of the checkpoint, if known; a BERT with the tensors of a sentence-order head gets one,
/// whatever config.json says. Throws ConfigError for unsupported architectures and features.
std::map<std::string, std::string> settings_of(const nlohmann::json& config, const std::string& source,
                                               const std::vector<std::string>& tensors = {});

}  // namespace colonnade::models::hf
