// config.json of BERT, both ways. Private to models/hf.
#pragma once

#include <string>
#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/models/hf/keys.h"

namespace colonnade::models::hf {

/// Of a model whose family is Family::kBert, without its type of weights: BertForPreTraining with a binary
/// head, else BertForMaskedLM.
nlohmann::json bert_config(const config::Model& model);

/// Faults for what our BERT does not have. `tensors` as in settings_of.
void read_bert(Keys& keys, const std::vector<std::string>& tensors, Settings& settings);

}  // namespace colonnade::models::hf
