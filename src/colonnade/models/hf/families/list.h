// The supported families, one source each. Private to models/hf.
#pragma once

#include <span>
#include <string_view>

#include "colonnade/models/hf/family.h"

namespace colonnade::models::hf {

const Family& llama();
const Family& mistral();
const Family& qwen2();
const Family& qwen3();
const Family& phi3();
const Family& olmo2();
const Family& granite();
const Family& seed_oss();
const Family& smollm3();
const Family& olmo3();
const Family& glm4();
const Family& nemotron();
const Family& starcoder2();
const Family& exaone4();
const Family& cohere2();
const Family& hunyuan_v1_dense();
const Family& ministral3();
const Family& olmoe();
const Family& mixtral();
const Family& qwen2_moe();
const Family& qwen3_moe();
const Family& deepseek_v2();
const Family& deepseek_v3();
const Family& glm4_moe();
const Family& minimax_m2();
const Family& ernie4_5_moe();
const Family& gpt_oss();
const Family& gemma2();
const Family& gemma3();
const Family& gpt2();
const Family& t5();
const Family& bert();

/// All of them. A model belongs to the first that fits.
std::span<const Family* const> all_families();

/// What a model_type needs that Colonnade lacks, in the plural: "state-space layers"; "" for other types.
std::string_view missing_layers(std::string_view model_type);

}  // namespace colonnade::models::hf
