// The Hugging Face class that a model's step folders open as, or what keeps them from having one.
#pragma once

#include <string>

#include "colonnade/config/model.h"

namespace colonnade::models::hf {

/// "LlamaForCausalLM"; for a model that no class can express, the fewest other flags with which one could:
/// "no Hugging Face class: without --apply-layernorm-1p it would be LlamaForCausalLM". At most three are
/// tried.
std::string export_text(const config::Model& model);

}  // namespace colonnade::models::hf
