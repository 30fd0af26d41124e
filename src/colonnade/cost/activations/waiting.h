// What a backward pass that leaves weight gradients keeps for them, part by part, and gradients of weights
// before they are added up; what cost/activations.h says of a stage.
#pragma once

#include "colonnade/cost/activations/sequences.h"

namespace colonnade::cost {

/// Of a weight with `elements`, before it is added in fp32.
std::int64_t weight_gradient(const Sizes& z, std::int64_t elements);
/// Of the experts' weights behind the activation; one kernel of CUDA computes those of all experts.
std::int64_t expert_gradient(const config::Run& run, const Sizes& z);
/// Elements of the largest weight of attention.
std::int64_t attention_weight(const Sizes& z);

/// Rows that come to this rank's experts, and what they make of them.
struct ExpertBytes {
  explicit ExpertBytes(const Sizes& z)
      : rows(z.rows * z.m.hidden_size * z.e), down(z.rows * z.e * z.expert_ffn), up(z.up * down) {}
  std::int64_t rows;  ///< as they come, or as they go
  std::int64_t down;  ///< behind the activation
  std::int64_t up;    ///< before it
};

/// Inputs and output gradients of the products of weights: of the head, for each token that is predicted, of
/// attention to an encoder, of router and gate, and of a whole layer.
std::int64_t head_waiting(const Sizes& z);
std::int64_t cross_waiting(const Sequences& s, std::int64_t layer);
std::int64_t router_waiting(const Sizes& z);
std::int64_t layer_waiting(const Sequences& s, std::int64_t layer);

}  // namespace colonnade::cost
