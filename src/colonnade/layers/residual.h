// Fused bias-dropout-add of a sub-layer's output into the residual stream, which is fp32 with
// --fp32-residual-connection. Source: Megatron's core/fusions/fused_bias_dropout.py.
#pragma once

#include <string>

#include "colonnade/config/model.h"
#include "colonnade/layers/context.h"
#include "colonnade/ops/dropout.h"
#include "colonnade/tensor/block.h"

namespace colonnade::layers {

/// Key of a named layer's dropout stream.
std::uint64_t dropout_stream(std::uint64_t seed, const std::string& name);
/// Dropout key of an activation x [s, b, h].
ops::DropoutKey dropout_key(std::uint64_t stream, const LocalRows& rows, const at::Tensor& x,
                            const tensor::Pass& pass);

/// Dtype of the residual stream of layers with parameters of `type` (config::Dtypes::residual): theirs, or
/// fp32 (float64 for float64) with --fp32-residual-connection.
at::ScalarType residual_type(const config::Model& model, at::ScalarType type);

/// y = residual + dropout(x + bias), in the dtype of the residual. The dropout mask depends on (seed, layer
/// name, sample, position, feature) only, so it is the same in every layout.
class Residual {
 public:
  Residual(std::string name, double dropout, const Context& context);
  /// Whether there is neither bias nor dropout, so that the addition can be fused into the next norm.
  [[nodiscard]] bool is_plain_add(const tensor::Parameter* bias, const tensor::Pass& pass) const {
    return bias == nullptr && !(pass.training && dropout_ > 0);
  }
  [[nodiscard]] at::Tensor forward(const at::Tensor& x, tensor::Parameter* bias, const at::Tensor& residual,
                                   const tensor::Pass& pass) const;
  /// dropout(x), as after the embedding.
  [[nodiscard]] at::Tensor drop(const at::Tensor& x, const tensor::Pass& pass) const;

 private:
  [[nodiscard]] ops::DropoutKey key(const at::Tensor& x, const tensor::Pass& pass) const {
    return dropout_key(key_, rows_, x, pass);
  }
  double dropout_;
  std::uint64_t key_;
  LocalRows rows_;
};

}  // namespace colonnade::layers
