// Mixture of experts (MoE) in place of a layer's dense MLP.
#pragma once

#include <optional>

#include "colonnade/layers/mlp.h"
#include "colonnade/layers/moe/dispatcher.h"
#include "colonnade/layers/moe/router.h"
#include "colonnade/layers/replicated_linear.h"
#include "colonnade/ops/activation.h"

namespace colonnade::layers {

/// y[t] = sum over the top-k experts e of weight[t, e] * fc2_e(act(fc1_e(x[t]))), with biases if linear
/// layers have them, plus the shared experts' MLP of x[t], optionally times sigmoid(x[t] . gate). x [s, b,
/// h], or [s / tp, b, h] with sequence parallelism; y has the shape of x.
///
/// With config::Moe::routed_size l the routed experts work on rows of width l: x[t] is replaced by down x[t]
/// before the dispatch, and the sum over experts by up of it after the combination; router and shared experts
/// read x. A row of l instead of h elements is sent. Source: Megatron's core/transformer/moe/moe_layer.py.
///
/// Training with tp > 1 needs sequence parallelism: otherwise every tensor rank would dispatch the same
/// tokens and the experts' gradients would count them tp times.
class Moe final : public Mixer {
 public:
  Moe(const layout::MoeParams& params, const config::Model& model, const Context& context);
  at::Tensor forward(const MixerInput& x, const tensor::Pass& pass) override;
  /// Router::finish_step().
  void finish_step() override { router_.finish_step(); }
  void add_parameters(std::vector<tensor::Parameter*>& all) const override;

 private:
  [[nodiscard]] at::Tensor gated_shared_experts(const at::Tensor& normed, const at::Tensor& rows,
                                                const tensor::Pass& pass);
  Router router_;
  std::optional<ReplicatedLinear> down_, up_;  ///< projections around the routed experts
  std::unique_ptr<tensor::Parameter> fc1_, fc2_, fc1_bias_, fc2_bias_;
  std::optional<Mlp> shared_;
  std::unique_ptr<tensor::Parameter> shared_gate_;
  std::unique_ptr<Dispatcher> dispatcher_;
  ops::ActivationKind activation_;
  bool recompute_activations_, recompute_shared_;  ///< recomputed in the backward pass
  bool overlap_shared_;  ///< shared experts overlap the dispatch (--moe-shared-expert-overlap)
  bool adds_fc2_bias_;   ///< first etp rank: adds fc2's bias once to the sum over etp
  bool tokens_differ_;   ///< tensor ranks hold different tokens
};

}  // namespace colonnade::layers
