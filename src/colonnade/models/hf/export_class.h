// Hugging Face class of a model's checkpoints, or the flags that prevent one.
#pragma once

#include <string>

#include "colonnade/config/model.h"

namespace colonnade::models::hf {

/// "LlamaForCausalLM"; for a model that no class can express, the fewest flag changes (at most three) that
/// give one: "no Hugging Face class: without --apply-layernorm-1p it would be LlamaForCausalLM".
std::string export_text(const config::Model& model);

}  // namespace colonnade::models::hf
