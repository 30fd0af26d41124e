// See router.h.
#include "colonnade/layers/moe/router.h"

#include <ATen/ATen.h>

#include "colonnade/ops/attach_loss.h"
#include "colonnade/ops/product.h"
#include "colonnade/tensor/kept.h"

namespace colonnade::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::ScalarType router_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

/// x W^T in the router's type, whatever that of the activations is.
struct RouterProduct : torch::autograd::Function<RouterProduct> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w,
                            tensor::Parameter* weight) {
    ctx->save_for_backward({x});
    tensor::keep(ctx, weight);
    return ops::product(x.to(router_type(x)), w.to(router_type(x)));
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    auto* weight = tensor::kept<tensor::Parameter*>(ctx);
    const at::Tensor x = ctx->get_saved_variables()[0];
    const at::Tensor dlogits = grads[0].contiguous();
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) {
      const at::Tensor w = weight->value.detach().to(dlogits.scalar_type());
      dx = ops::product_input_grad(dlogits, w).to(x.scalar_type());
    }
    weight->accumulate_product(dlogits, x.to(dlogits.scalar_type()));
    return {dx, at::Tensor(), at::Tensor()};
  }
};

ops::RouteArgs route_args(const config::Moe& moe) {
  ops::RouteArgs args;
  args.k = moe.router_topk;
  args.kind = moe.router_score_function == config::RouterScore::kSoftmax ? kernels::ScoreKind::kSoftmax
              : moe.router_score_function == config::RouterScore::kSigmoid
                  ? kernels::ScoreKind::kSigmoid
                  : kernels::ScoreKind::kSqrtSoftplus;
  args.normalise = args.kind == kernels::ScoreKind::kSoftmax ? !moe.router_pre_softmax : args.k > 1;
  if (moe.router_num_groups > 1 && moe.router_group_topk > 0) {
    args.groups = moe.router_num_groups;
    args.group_topk = moe.router_group_topk;
    args.group_best = args.k / args.group_topk;
  }
  args.scaling = moe.router_topk_scaling_factor.value_or(1);
  return args;
}

/// log(sum_e exp(logit_e)) of each row, without overflow.
at::Tensor log_sum_exp(const at::Tensor& logits) {
  const at::Tensor top = logits.detach().amax(-1, true);
  return (logits - top).exp().sum(-1).log() + top.squeeze(-1);
}

/// Tokens of each sequence that chose each expert [b, e], of experts [s * b, k].
at::Tensor chosen(const at::Tensor& experts, std::int64_t sequences, std::int64_t count,
                  const at::TensorOptions& options) {
  const at::Tensor counts = at::zeros({sequences, count}, options);
  if (experts.is_meta()) return counts;
  const at::Tensor by_sequence =
      experts.view({-1, sequences, experts.size(1)}).permute({1, 0, 2}).reshape({sequences, -1});
  return counts.scatter_add(1, by_sequence, at::ones(by_sequence.sizes(), options));
}

}  // namespace

Router::Router(const plan::ParamSpec& spec, const config::Model& model, const Context& context)
    : weight(context.make(spec)),
      args_(route_args(model.moe)),
      z_loss_(model.moe.z_loss_coeff),
      parts_(context.sequence_parallel ? context.tp : comm::Group()) {
  const config::Moe& moe = model.moe;
  for (std::size_t i = 0; i < moe.router_load_balancing_type.size(); ++i) {
    const std::string& kind = moe.router_load_balancing_type[i];
    const double coefficient = i < moe.aux_loss_coeff.size() ? moe.aux_loss_coeff[i] : 0;
    if (coefficient == 0 || kind == "none") continue;
    const bool per_sequence = kind == "seq_aux_loss";
    balances_.push_back(
        {per_sequence ? "seq_load_balancing_loss" : "load_balancing_loss", coefficient, per_sequence});
  }
}

ops::Routing Router::forward(const at::Tensor& x, const tensor::Pass& pass) const {
  const at::Tensor logits = RouterProduct::apply(x.reshape({-1, x.size(-1)}), weight->value, weight.get());
  ops::Routing routing = ops::route(logits, args_);
  if (!pass.training) return routing;
  for (const Balance& balance : balances_) routing.weights = add_balance(routing, balance, x.size(1), pass);
  if (z_loss_ > 0) routing.weights = add_z_loss(routing.weights, logits, pass);
  return routing;
}

/// `own`: this rank's share of the loss, `whole`: the loss, both without the coefficient.
at::Tensor Router::add_loss(const at::Tensor& weights, const at::Tensor& own, const at::Tensor& whole,
                            double coefficient, const std::string& name, const tensor::Pass& pass) const {
  if (pass.report != nullptr)
    tensor::add(*pass.report, name, tensor::tally(whole.detach(), at::ones({}, whole.options())));
  return ops::attach_loss(weights, own, coefficient * pass.grad_scale);
}

at::Tensor Router::add_balance(const ops::Routing& routing, const Balance& balance, std::int64_t sequences,
                               const tensor::Pass& pass) const {
  const std::int64_t experts = routing.scores.size(1);
  const std::int64_t apart = balance.per_sequence ? sequences : 1;
  at::Tensor scores = routing.scores;
  if (args_.kind != kernels::ScoreKind::kSoftmax) scores = scores / (scores.sum(-1, true) + 1e-20);
  const at::Tensor share = scores.view({-1, apart, experts}).sum(0);
  at::Tensor sums = at::stack({chosen(routing.experts, apart, experts, share.options()), share.detach()});
  parts_.all_reduce(sums, weight->spec.name + " / balance").wait();
  const double tokens =
      static_cast<double>(routing.scores.size(0)) / static_cast<double>(apart) * parts_.size();
  const double factor = static_cast<double>(experts) /
                        (static_cast<double>(args_.k) * tokens * tokens * static_cast<double>(apart));
  return add_loss(routing.weights, (share * sums[0]).sum() * factor, (sums[1] * sums[0]).sum() * factor,
                  balance.coefficient, balance.name, pass);
}

at::Tensor Router::add_z_loss(const at::Tensor& weights, const at::Tensor& logits,
                              const tensor::Pass& pass) const {
  const at::Tensor own = log_sum_exp(logits).square().mean() / parts_.size();
  at::Tensor whole = own.detach().clone();
  parts_.all_reduce(whole, weight->spec.name + " / z-loss").wait();
  return add_loss(weights, own, whole, z_loss_, "z_loss", pass);
}

}  // namespace colonnade::layers
