// Reads and writes config.json of BERT. Private to models/hf.
#pragma once

#include <string>
#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/models/hf/keys.h"

namespace colonnade::models::hf {

/// config.json of a Family::kBert model, without torch_dtype: BertForPreTraining with a binary head, else
/// BertForMaskedLM.
nlohmann::json bert_config(const config::Model& model);

/// Reports features that our BERT lacks as faults. `tensors` as in settings_of.
void read_bert(Keys& keys, const std::vector<std::string>& tensors, Settings& settings);

}  // namespace colonnade::models::hf
