// config.json of BERT, both ways. Private to models/hf.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "colonnade/config/model.h"

namespace colonnade::models::hf {

/// Of a model whose family is Family::kBert, without its type of weights: BertForPreTraining with a binary
/// head, else BertForMaskedLM.
nlohmann::json bert_config(const config::Model& model);

/// As settings_of. Throws ConfigError for what our BERT does not have.
std::map<std::string, std::string> bert_settings(const nlohmann::json& config, const std::string& source,
                                                 const std::vector<std::string>& tensors);

}  // namespace colonnade::models::hf
