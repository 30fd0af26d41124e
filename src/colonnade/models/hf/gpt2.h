// Reads and writes config.json of GPT-2. Private to models/hf.
#pragma once

#include "colonnade/config/model.h"
#include "colonnade/models/hf/keys.h"

namespace colonnade::models::hf {

/// config.json of a Family::kGpt2 model, without torch_dtype.
nlohmann::json gpt2_config(const config::Model& model);

void read_gpt2(Keys& keys, Settings& settings);

}  // namespace colonnade::models::hf
