// Hugging Face's config.json and our model settings, both ways.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "colonnade/config/model.h"

namespace colonnade::models::hf {

/// Of GELU's quick form, as config.json has it (swiglu_alpha).
inline constexpr double kQuickAlpha = 1.702;

/// model_type of a config.json; "" where it has none that is a text.
std::string model_type_of(const nlohmann::json& config);

/// config.json of a model that family_of() can express; null for others.
nlohmann::json config_of(const config::Model& model);

/// The settings (keys of the schema) that a config.json of a model of a Family stands for, as Transformers
/// 4 or 5 writes it. `tensors`: names in the checkpoint, where they are known; a BERT whose sentence-order
/// head is among them has one, whatever config.json names. Throws ConfigError for other architectures and for
/// switches that our models do not have.
std::map<std::string, std::string> settings_of(const nlohmann::json& config, const std::string& source,
                                               const std::vector<std::string>& tensors = {});

}  // namespace colonnade::models::hf
