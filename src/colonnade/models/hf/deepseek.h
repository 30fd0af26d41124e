// Reads and writes config.json of DeepSeek-V3 and models of its class (Kimi K2). Private to models/hf.
#pragma once

#include "colonnade/config/model.h"
#include "colonnade/models/hf/layers_read.h"

namespace colonnade::models::hf {

/// Keys of DeepSeek-V3 beyond those of all Llama-like models.
nlohmann::json deepseek_config(const config::Model& model);

/// `defaults` with the head size, which follows from qk_rope_head_dim.
SizeDefaults deepseek_sizes(Keys& keys, SizeDefaults defaults);

/// Settings of DeepSeek-V3 beyond those of all Llama-like models. num_nextn_predict_layers is ignored, as MTP
/// layers only serve training;
/// --mtp-num-layers enables them.
void read_deepseek_v3(Keys& keys, const Sizes& sizes, Settings& settings);

}  // namespace colonnade::models::hf
