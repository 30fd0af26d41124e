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
const Family& mixtral();
const Family& qwen3_moe();
const Family& deepseek_v3();
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
