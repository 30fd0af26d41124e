// See routing.h.
#include "colonnade/ops/routing.h"

#include <ATen/ATen.h>

#include "colonnade/ops/autograd.h"
#include "colonnade/ops/launch.h"

namespace colonnade::ops {
namespace {

/// f.operator()<T>() for the two types of routers.
template <typename F>
void with_router_type(at::ScalarType type, const F& f) {
  if (type == at::kDouble)
    f.template operator()<double>();
  else
    f.template operator()<float>();
}

struct RouteRule : torch::autograd::Function<RouteRule> {
  static variable_list forward(AutogradContext* ctx, const Tensor& logits, const RouteArgs& args) {
    const std::int64_t n = logits.size(0), e = logits.size(1);
    const Tensor scores = at::empty_like(logits);
    const Tensor weights = at::empty({n, args.k}, logits.options());
    const Tensor experts =
        args.assigned.defined() ? args.assigned : at::empty({n, args.k}, logits.options().dtype(at::kLong));
    with_router_type(logits.scalar_type(), [&]<typename T>() {
      launch(logits, kernels::cpu::route<T>, kernels::cuda::route<T>,
             kernels::Route<T>{in<T>(logits), in<T>(args.bias), out<T>(scores), out<std::int64_t>(experts),
                               out<T>(weights), n, e, args.k, args.kind, args.normalise, args.groups,
                               args.group_topk, args.group_best, static_cast<T>(args.scaling),
                               args.assigned.defined()});
    });
    ctx->save_for_backward({scores, experts});
    ctx->mark_non_differentiable({experts});
    keep(ctx, args);
    return {experts, weights, scores};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor& scores = saved[0];
    const auto args = kept<RouteArgs>(ctx);
    const Tensor grad_weights =
        grads[1].defined() ? grads[1].contiguous() : at::zeros_like(saved[1], scores.options());
    const Tensor grad_scores = contiguous(grads[2]);
    const Tensor grad_logits = at::empty_like(scores);
    with_router_type(scores.scalar_type(), [&]<typename T>() {
      launch(scores, kernels::cpu::route_grad<T>, kernels::cuda::route_grad<T>,
             kernels::RouteGrad<T>{in<T>(scores), in<std::int64_t>(saved[1]), in<T>(grad_weights),
                                   in<T>(grad_scores), out<T>(grad_logits), scores.size(0), scores.size(1),
                                   args.k, args.kind, args.normalise, static_cast<T>(args.scaling)});
    });
    return {grad_logits, Tensor()};
  }
};

void check_routing(const Tensor& logits, const RouteArgs& args) {
  COL_CHECK(logits.dim() == 2 && (logits.scalar_type() == at::kFloat || logits.scalar_type() == at::kDouble),
            "route: logits must be [n, e] in fp32 or float64; got {} {}", c10::toString(logits.scalar_type()),
            c10::str(logits.sizes()));
  const std::int64_t e = logits.size(1);
  COL_CHECK(
      args.groups >= 1 && args.groups <= kernels::kMaxExpertGroups && e % args.groups == 0 &&
          args.group_topk >= 1 && args.group_topk <= args.groups && args.group_best >= 1 &&
          args.group_best <= e / args.groups && args.k >= 1 && args.k <= e / args.groups * args.group_topk,
      "route: k experts must be found among group_topk equal groups; got k {} of {} experts, {} of {} groups "
      "valued by {}",
      args.k, e, args.group_topk, args.groups, args.group_best);
  COL_CHECK(
      !args.bias.defined() || (args.bias.scalar_type() == logits.scalar_type() && args.bias.is_contiguous() &&
                               args.bias.numel() == e && args.bias.device() == logits.device()),
      "route: the bias must be like a row of the logits; got {} {}",
      args.bias.defined() ? c10::toString(args.bias.scalar_type()) : "none",
      args.bias.defined() ? c10::str(args.bias.sizes()) : "");
  const Tensor& assigned = args.assigned;
  COL_CHECK(!assigned.defined() || (assigned.scalar_type() == at::kLong && assigned.is_contiguous() &&
                                    assigned.sizes() == at::IntArrayRef({logits.size(0), args.k}) &&
                                    assigned.device() == logits.device()),
            "route: assigned experts must be int64 [n, k] beside the logits; got {} {} for {} rows and k {}",
            assigned.defined() ? c10::toString(assigned.scalar_type()) : "none",
            assigned.defined() ? c10::str(assigned.sizes()) : "", logits.size(0), args.k);
}

}  // namespace

Routing route(const Tensor& logits, const RouteArgs& args) {
  check_routing(logits, args);
  const variable_list made = RouteRule::apply(logits.contiguous(), args);
  return {.experts = made[0], .weights = made[1], .scores = made[2]};
}

Tensor sinkhorn_experts(const Tensor& logits, std::int64_t k) {
  COL_CHECK(logits.dim() == 2 && k >= 1 && k <= logits.size(1),
            "sinkhorn_experts: k experts must be among those of logits [n, e]; got k {} and {}", k,
            c10::str(logits.sizes()));
  if (logits.is_meta()) return at::empty({logits.size(0), k}, logits.options().dtype(at::kLong));
  const at::NoGradGuard no_grad;
  constexpr double kEpsilon = 1e-8, kTolerance = 1e-4;
  constexpr int kMostRounds = 200;  // a neglected expert drifts by kEpsilon without end
  const auto n = static_cast<double>(logits.size(0)), e = static_cast<double>(logits.size(1));
  const Tensor c = logits.to(at::kFloat).exp();
  Tensor d = at::ones({logits.size(1)}, c.options()), r;
  bool moves = logits.size(0) > 0;
  for (int round = 0; moves && round < kMostRounds; ++round) {
    const Tensor last = d;
    r = ((c * d).sum(1, true) + kEpsilon).mul_(n).reciprocal_();
    d = ((c * r).sum(0) + kEpsilon).mul_(e).reciprocal_();
    moves = (d - last).abs().mean().item<float>() > kTolerance;
  }
  return std::get<1>((c * d).topk(k, 1));
}

}  // namespace colonnade::ops
