// How a sub-layer's output joins the residual stream: bias, dropout and addition in one pass.
#pragma once

#include <string>

#include "colonnade/layers/context.h"
#include "colonnade/ops/dropout.h"
#include "colonnade/tensor/block.h"

namespace colonnade::layers {

/// The key of a named layer's random stream.
std::uint64_t dropout_stream(std::uint64_t seed, const std::string& name);
/// Of an activation x [s, b, h].
ops::DropoutKey dropout_key(std::uint64_t stream, const SharedRows& rows, const at::Tensor& x,
                            const tensor::Pass& pass);

/// y = residual + dropout(x + bias). The dropped elements depend on (seed, layer name, sample,
/// place in it, feature) only, so every layout drops the same ones.
class Residual {
 public:
  Residual(std::string name, double dropout, const Context& context);
  /// True when the addition is all there is, and may be fused into the norm that follows.
  [[nodiscard]] bool only_adds(const tensor::Parameter* bias, const tensor::Pass& pass) const {
    return bias == nullptr && !(pass.training && dropout_ > 0);
  }
  [[nodiscard]] at::Tensor forward(const at::Tensor& x, tensor::Parameter* bias, const at::Tensor& residual,
                                   const tensor::Pass& pass) const;
  /// dropout(x) alone, as after the embedding.
  [[nodiscard]] at::Tensor drop(const at::Tensor& x, const tensor::Pass& pass) const;

 private:
  [[nodiscard]] ops::DropoutKey key(const at::Tensor& x, const tensor::Pass& pass) const {
    return dropout_key(key_, rows_, x, pass);
  }
  double dropout_;
  std::uint64_t key_;
  SharedRows rows_;
};

}  // namespace colonnade::layers
