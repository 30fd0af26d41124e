// Tensors that a backward pass with delayed weight gradients saves for them, by part of a stage, and weight
// gradients before they are accumulated; cost/activations.h has the formulas of a whole stage.
#pragma once

#include "colonnade/cost/activations/sequences.h"

namespace colonnade::cost {

/// Gradient of a weight with `elements`, before its accumulation; 0 if that needs no conversion.
std::int64_t weight_gradient_bytes(const Sizes& z, std::int64_t elements);
/// Gradient of fc2 of one expert; on CUDA in bf16 of all local experts, which one kernel computes.
std::int64_t expert_gradient_bytes(const config::Run& run, const Sizes& z);
/// Elements of the largest local attention weight.
std::int64_t largest_attention_weight(const Sizes& z);

/// Bytes of the rows of this rank's experts.
struct ExpertBytes {
  explicit ExpertBytes(const Sizes& z)
      : hidden(z.expert_rows * z.m.hidden_size * z.e),
        fc2_input(z.expert_rows * z.e * z.expert_ffn),
        fc1_output(z.fc1_per_ffn * fc2_input) {}
  std::int64_t hidden;      ///< inputs, or outputs
  std::int64_t fc2_input;   ///< after the activation
  std::int64_t fc1_output;  ///< before the activation
};

/// Inputs and output gradients of the linear layers of the head (per predicted token), of cross-attention, of
/// router and shared-expert gate, and of a whole layer.
std::int64_t head_wgrad_saved(const Sizes& z);
std::int64_t cross_attention_wgrad_saved(const Sequences& s, std::int64_t layer);
std::int64_t router_wgrad_saved(const Sizes& z);
std::int64_t layer_wgrad_saved(const Sequences& s, std::int64_t layer);

}  // namespace colonnade::cost
