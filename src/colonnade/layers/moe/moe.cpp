// See moe.h.
#include "colonnade/layers/moe/moe.h"

#include "colonnade/base/error.h"
#include "colonnade/layers/recompute.h"
#include "colonnade/ops/activation.h"
#include "colonnade/ops/grouped_matmul.h"

namespace colonnade::layers {

Moe::Moe(const layout::MoeParams& params, const config::Model& model, const Context& context)
    : router_(params, model, context),
      fc1_(context.make(params.fc1)),
      fc2_(context.make(params.fc2)),
      fc1_bias_(context.make(params.fc1_bias)),
      fc2_bias_(context.make(params.fc2_bias)),
      shared_gate_(context.make(params.shared_gate)),
      dispatcher_(make_dispatcher(model.moe, context, params.fc1.name)),
      activation_(model),
      recompute_activations_(context.recompute.recomputes("moe_act")),
      recompute_shared_(context.recompute.recomputes("shared_experts")),
      overlap_shared_(model.moe.shared_expert_overlap),
      adds_fc2_bias_(context.dispatch.rank() % context.etp == 0),
      tokens_differ_(context.tp.size() == 1 || context.sequence_parallel) {
  if (params.down) down_.emplace(*params.down, context);
  if (params.up) up_.emplace(*params.up, context);
  if (params.shared_fc1) shared_.emplace(*params.shared_fc1, *params.shared_fc2, model, context);
}

at::Tensor Moe::forward(const MixerInput& x, const tensor::Pass& pass) {
  const at::Tensor& normed = x.normed;
  COL_CHECK(
      tokens_differ_ || !pass.training,
      "{}: training with tensor parallelism needs sequence parallelism; got the same tokens on all tensor "
      "ranks; use --sequence-parallel",
      fc1_->spec.name);
  const ops::Routing routing = router_.forward(normed, pass);
  // Reassigning `rows` releases each step's input unless the backward pass saved it.
  const auto compute = [this](at::Tensor rows, const std::vector<std::int64_t>& counts) {
    rows = ops::grouped_matmul(rows, counts, *fc1_, {fc1_bias_.get()});
    const at::Tensor up = recompute_activations_ ? rows.detach() : at::Tensor();
    rows = ops::activate(rows, activation_);
    const at::Tensor y = ops::grouped_matmul(rows, counts, *fc2_, {fc2_bias_.get(), adds_fc2_bias_});
    if (recompute_activations_)
      discard_and_recompute({rows}, y, [this, up] { return Tensors{ops::activate(up, activation_)}; });
    return y;
  };
  const at::Tensor rows = normed.reshape({-1, normed.size(-1)});
  at::Tensor shared;
  const auto run_shared = [&] { shared = gated_shared_experts(normed, rows, pass); };
  const bool overlaps = shared_ && overlap_shared_;
  at::Tensor y = dispatcher_->run(down_ ? down_->forward(rows) : rows, routing, compute,
                                  overlaps ? run_shared : std::function<void()>());
  if (up_) y = up_->forward(y);
  y = y.view(normed.sizes());
  if (!shared_) return y;
  if (!overlaps) run_shared();
  return y + shared;
}

/// Shared experts' output, times the gate if there is one.
at::Tensor Moe::gated_shared_experts(const at::Tensor& normed, const at::Tensor& rows,
                                     const tensor::Pass& pass) {
  const auto run = [this](const Tensors& x, const tensor::Pass& now) {
    return shared_->forward({.normed = x[0], .encoded = {}}, now);
  };
  const at::Tensor shared = recompute_shared_ ? recompute({normed}, pass, run) : run({normed}, pass);
  if (!shared_gate_) return shared;
  const at::Tensor gate = fp32_linear(rows, *shared_gate_).sigmoid().to(normed.scalar_type());
  return shared * gate.view({normed.size(0), normed.size(1), 1});
}

void Moe::add_parameters(std::vector<tensor::Parameter*>& all) const {
  collect(all, {router_.weight.get(), router_.bias.get(), router_.expert_bias.get()});
  if (down_) down_->add_parameters(all);
  collect(all, {fc1_.get(), fc2_.get(), fc1_bias_.get(), fc2_bias_.get()});
  if (up_) up_->add_parameters(all);
  if (shared_) shared_->add_parameters(all);
  collect(all, {shared_gate_.get()});
}

}  // namespace colonnade::layers
