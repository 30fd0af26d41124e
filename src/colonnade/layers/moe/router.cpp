// See router.h.
#include "colonnade/layers/moe/router.h"

#include <ATen/ATen.h>

#include "colonnade/layers/moe/wide_product.h"
#include "colonnade/ops/attach_loss.h"

namespace colonnade::layers {
namespace {

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
    args.group_best = moe.router_group_best > 0 ? moe.router_group_best : args.k / args.group_topk;
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

Router::Router(const plan::MoeParams& params, const config::Model& model, const Context& context)
    : weight(context.make(params.router)),
      bias(context.make(params.router_bias)),
      expert_bias(context.make(params.expert_bias)),
      args_(route_args(model.moe)),
      z_loss_(model.moe.z_loss_coeff),
      tensor_(context.sequence_parallel ? context.tp : comm::Group()),
      context_(context.cp.all),
      readers_(context.readers),
      bias_rate_(model.moe.router_bias_update_rate) {
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

ops::Routing Router::forward(const at::Tensor& x, const tensor::Pass& pass) {
  const at::Tensor logits = wide_product(x.reshape({-1, x.size(-1)}), *weight, bias.get());
  ops::RouteArgs args = args_;
  if (expert_bias) args.bias = expert_bias->value;
  ops::Routing routing = ops::route(logits, args);
  if (!pass.training) return routing;
  if (expert_bias && !pass.again) {
    const at::Tensor taken = chosen(routing.experts, 1, logits.size(1), expert_bias->value.options())[0];
    taken_ = taken_.defined() ? taken_ + taken : taken;
  }
  for (const Balance& balance : balances_) routing.weights = add_balance(routing, balance, x.size(1), pass);
  if (z_loss_ > 0) routing.weights = add_z_loss(routing.weights, logits, pass);
  return routing;
}

int Router::parts() const { return tensor_.size() * context_.size(); }

/// Over the ranks that hold the other parts of the sequence.
void Router::sum_parts(at::Tensor& sums, const char* what) const {
  for (const comm::Group* group : {&tensor_, &context_})
    group->all_reduce(sums, weight->spec.name + " / " + what).wait();
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
  const bool steered = args_.groups > 1 || expert_bias != nullptr;
  const at::Tensor best = steered ? std::get<1>(scores.detach().topk(args_.k, -1)) : routing.experts;
  at::Tensor sums = at::stack({chosen(best, apart, experts, share.options()), share.detach()});
  sum_parts(sums, "balance");
  const double tokens = static_cast<double>(routing.scores.size(0)) / static_cast<double>(apart) * parts();
  const double factor = static_cast<double>(experts) /
                        (static_cast<double>(args_.k) * tokens * tokens * static_cast<double>(apart));
  return add_loss(routing.weights, (share * sums[0]).sum() * factor, (sums[1] * sums[0]).sum() * factor,
                  balance.coefficient, balance.name, pass);
}

at::Tensor Router::add_z_loss(const at::Tensor& weights, const at::Tensor& logits,
                              const tensor::Pass& pass) const {
  const at::Tensor own = log_sum_exp(logits).square().mean() / parts();
  at::Tensor whole = own.detach().clone();
  sum_parts(whole, "z-loss");
  return add_loss(weights, own, whole, z_loss_, "z_loss", pass);
}

void Router::finish_step() {
  if (!expert_bias || !taken_.defined()) return;
  readers_.all_reduce(taken_, weight->spec.name + " / tokens of each expert").wait();
  expert_bias->value.add_((taken_.mean() - taken_).sign_(), bias_rate_);
  taken_ = at::Tensor();
}

}  // namespace colonnade::layers
