// The output layer and cross-entropy in one rule, over a vocabulary cut over tp.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "colonnade/comm/group.h"
#include "colonnade/layers/embedding.h"
#include "colonnade/tensor/parameter.h"

namespace colonnade::layers {

/// What logits are made of: z = x W^T + b, or c tanh(z / c) of it.
struct OutputLayer {
  tensor::Parameter* weight;          ///< this rank's rows [v, h]
  tensor::Parameter* bias = nullptr;  ///< [v]; null: none
  double softcap = 0;                 ///< c; 0: none
  [[nodiscard]] std::optional<at::Tensor> bias_value() const {
    return bias == nullptr ? std::nullopt : std::optional(bias->value);
  }
};

/// loss[t] = log(sum_v exp(z_v)) - z_label(t) of the logits z_v, in fp32 (float64 for float64).
///
/// Shapes: x [s, b, h] ([s / tp, b, h] with sequence parallelism), labels int64 [b, s] (negative: loss and
/// gradient are 0) -> loss [b, s]. Communication: forward, one maximum and one sum of 2 s b numbers;
/// backward, the gradient of x is summed over tp while the weight gradient is computed. Memory: the logits
/// are kept for the backward pass, as they are before their cap, which turns them into their gradient in
/// place. Source of the cap: Gemma 2 2024.
at::Tensor vocab_loss(const at::Tensor& x, const OutputLayer& output, const at::Tensor& labels,
                      const comm::Group& tp, bool sequence_parallel);

/// logits [b, s, vocabulary] of all ranks' rows, without filling, in fp32. Not differentiable.
at::Tensor vocab_logits(const at::Tensor& x, const OutputLayer& output, const comm::Group& tp,
                        bool sequence_parallel);

}  // namespace colonnade::layers
