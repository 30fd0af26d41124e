// A mixture of experts in place of a layer's MLP.
#pragma once

#include <optional>

#include "colonnade/layers/mlp.h"
#include "colonnade/layers/moe/dispatcher.h"
#include "colonnade/layers/moe/router.h"
#include "colonnade/ops/activation.h"

namespace colonnade::layers {

/// y[t] = sum over the k chosen experts e of weight[t, e] * fc2_e(act(fc1_e(x[t]))), with biases of fc1 and
/// fc2 where linear layers have some, plus the shared experts' MLP of x[t], which a gate may weigh by
/// sigmoid(x[t] . gate). x [s, b, h], or [s / tp, b, h] with sequence parallelism; y is like it.
///
/// In training with tp above 1 sequence parallelism is needed: else each tensor rank would send the same
/// tokens, and the experts' gradients would count them tp times.
class Moe {
 public:
  Moe(const layout::MoeParams& params, const config::Model& model, const Context& context);
  [[nodiscard]] at::Tensor forward(const at::Tensor& normed, const tensor::Pass& pass);
  /// See Router::finish_step.
  void finish_step() { router_.finish_step(); }
  void add_parameters(std::vector<tensor::Parameter*>& all) const;

 private:
  [[nodiscard]] at::Tensor weighed_shared(const at::Tensor& normed, const at::Tensor& rows,
                                          const tensor::Pass& pass);
  Router router_;
  std::unique_ptr<tensor::Parameter> fc1_, fc2_, fc1_bias_, fc2_bias_;
  std::optional<Mlp> shared_;
  std::unique_ptr<tensor::Parameter> shared_gate_;
  std::unique_ptr<Dispatcher> dispatcher_;
  ops::ActivationKind activation_;
  bool activations_again_, shared_again_;  ///< made again in the backward pass
  bool overlaps_;                          ///< shared experts with the exchange of rows
  bool first_;  ///< of the expert tensor ranks: adds the biases of fc2, whose products are summed
  bool once_;   ///< tokens of different ranks differ
};

}  // namespace colonnade::layers
