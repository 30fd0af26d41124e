// config.json of GPT-2, both ways. Private to models/hf.
#pragma once

#include "colonnade/config/model.h"
#include "colonnade/models/hf/keys.h"

namespace colonnade::models::hf {

/// Of a model whose family is Family::kGpt2, without its type of weights.
nlohmann::json gpt2_config(const config::Model& model);

void read_gpt2(Keys& keys, Settings& settings);

}  // namespace colonnade::models::hf
