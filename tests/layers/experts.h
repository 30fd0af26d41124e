// Sizes and settings of the tests of routers and experts.
#pragma once

#include "colonnade/config/model.h"
#include "layers/sizes.h"
#include "layers/support.h"

namespace colonnade::layers {

inline constexpr std::int64_t kHidden = 12, kExperts = 4;

/// One layer of experts, without biases.
inline config::Model expert_model() {
  config::Model m;
  m.num_layers = 1;
  m.hidden_size = kHidden;
  m.ffn_hidden_size = 20;
  m.num_attention_heads = m.num_query_groups = 4;
  m.kv_channels = 3;
  m.vocab_size = 32;
  m.add_bias_linear = false;
  m.moe.num_experts = kExperts;
  m.moe.ffn_hidden_size = 8;
  return m;
}

}  // namespace colonnade::layers
