// Fused output layer and vocabulary-parallel cross-entropy.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "colonnade/comm/group.h"
#include "colonnade/layers/embedding.h"
#include "colonnade/tensor/parameter.h"

namespace colonnade::layers {

/// Output layer: logits z = x W^T + b, or c tanh(z / c) with a soft cap c.
struct OutputLayer {
  tensor::Parameter* weight;          ///< [v, h], this rank's shard of the vocabulary
  tensor::Parameter* bias = nullptr;  ///< [v]; null: none
  double softcap = 0;                 ///< c; 0: no cap
  [[nodiscard]] std::optional<at::Tensor> bias_value() const {
    return bias == nullptr ? std::nullopt : std::optional(bias->value);
  }
};

/// loss[t] = log(sum_v exp(z_v)) - z_label(t) of the logits z_v, in fp32 (float64 for float64).
///
/// Shapes: x [s, b, h] ([s / tp, b, h] with sequence parallelism), labels int64 [b, s] (negative: loss and
/// gradient are 0) -> loss [b, s]. Communication: forward, a max all-reduce of s b numbers and a sum
/// all-reduce of 2 s b; backward, the reduction of the gradient of x over tp overlaps the weight gradient
/// GEMM. Memory: uncapped logits are saved for the backward pass, which overwrites them with their gradient.
/// Source of the cap: Gemma 2 2024.
at::Tensor vocab_loss(const at::Tensor& x, const OutputLayer& output, const at::Tensor& labels,
                      const comm::Group& tp, bool sequence_parallel);

/// Logits [b, s, vocabulary] gathered from all tensor ranks, without vocabulary padding, in fp32 (float64 for
/// float64). Not differentiable.
at::Tensor vocab_logits(const at::Tensor& x, const OutputLayer& output, const comm::Group& tp,
                        bool sequence_parallel);

}  // namespace colonnade::layers
