// config.json of DeepSeek-V3 and its kin, both ways. Private to models/hf.
#pragma once

#include "colonnade/config/model.h"
#include "colonnade/models/hf/layers_read.h"

namespace colonnade::models::hf {

/// What a DeepSeek-V3 has besides the keys of all with Llama's layers.
nlohmann::json deepseek_config(const config::Model& model);

/// `defaults` with the head's size, which is no choice of config.json.
SizeDefaults deepseek_sizes(Keys& keys, SizeDefaults defaults);

/// Multi-latent attention, then experts. Layers for multi-token prediction (num_nextn_predict_layers) belong
/// to the training and are not read: --mtp-num-layers asks for them.
void read_deepseek_v3(Keys& keys, const Sizes& sizes, Settings& settings);

}  // namespace colonnade::models::hf
