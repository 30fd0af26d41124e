// See routing.h.
#include "colonnade/ops/routing.h"

#include <ATen/ATen.h>

#include "colonnade/ops/autograd.h"
#include "colonnade/ops/launch.h"

namespace colonnade::ops {
namespace {

/// Calls f.operator()<T>() for the router dtypes, fp32 and float64.
template <typename F>
void with_router_type(at::ScalarType type, const F& f) {
  if (type == at::kDouble)
    f.template operator()<double>();
  else
    f.template operator()<float>();
}

struct RouteFunction : torch::autograd::Function<RouteFunction> {
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
    save_value(ctx, args);
    return {experts, weights, scores};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor& scores = saved[0];
    const auto args = saved_value<RouteArgs>(ctx);
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
            "router logits must be [n, e] in fp32 or float64; got {} {}", c10::toString(logits.scalar_type()),
            c10::str(logits.sizes()));
  const std::int64_t e = logits.size(1);
  COL_CHECK(
      args.groups >= 1 && args.groups <= kernels::kMaxExpertGroups && e % args.groups == 0 &&
          args.group_topk >= 1 && args.group_topk <= args.groups && args.group_best >= 1 &&
          args.group_best <= e / args.groups && args.k >= 1 && args.k <= e / args.groups * args.group_topk,
      "router must find k experts in group_topk equal groups; got k {} of {} experts, {} of {} groups scored "
      "by {} experts",
      args.k, e, args.group_topk, args.groups, args.group_best);
  COL_CHECK(
      !args.bias.defined() || (args.bias.scalar_type() == logits.scalar_type() && args.bias.is_contiguous() &&
                               args.bias.numel() == e && args.bias.device() == logits.device()),
      "router bias must match a row of the logits; got {} {}",
      args.bias.defined() ? c10::toString(args.bias.scalar_type()) : "none",
      args.bias.defined() ? c10::str(args.bias.sizes()) : "");
  const Tensor& assigned = args.assigned;
  COL_CHECK(
      !assigned.defined() || (assigned.scalar_type() == at::kLong && assigned.is_contiguous() &&
                              assigned.sizes() == at::IntArrayRef({logits.size(0), args.k}) &&
                              assigned.device() == logits.device()),
      "assigned experts must be int64 [n, k] on the device of the logits; got {} {} for {} rows and k {}",
      assigned.defined() ? c10::toString(assigned.scalar_type()) : "none",
      assigned.defined() ? c10::str(assigned.sizes()) : "", logits.size(0), args.k);
}

}  // namespace

Routing route(const Tensor& logits, const RouteArgs& args) {
  check_routing(logits, args);
  const variable_list outputs = RouteFunction::apply(logits.contiguous(), args);
  return {.experts = outputs[0], .weights = outputs[1], .scores = outputs[2]};
}

Tensor sinkhorn_experts(const Tensor& logits, std::int64_t k) {
  COL_CHECK(logits.dim() == 2 && k >= 1 && k <= logits.size(1),
            "k of sinkhorn_experts must be in [1, e] for logits [n, e]; got k {} and {}", k,
            c10::str(logits.sizes()));
  if (logits.is_meta()) return at::empty({logits.size(0), k}, logits.options().dtype(at::kLong));
  const at::NoGradGuard no_grad;
  constexpr double kEpsilon = 1e-8, kTolerance = 1e-4;
  constexpr int kMaxIterations = 200;  // kEpsilon makes a starved expert drift forever
  const auto n = static_cast<double>(logits.size(0)), e = static_cast<double>(logits.size(1));
  const Tensor c = logits.to(at::kFloat).exp();
  Tensor d = at::ones({logits.size(1)}, c.options()), r;
  bool is_changing = logits.size(0) > 0;
  for (int iteration = 0; is_changing && iteration < kMaxIterations; ++iteration) {
    const Tensor last = d;
    r = ((c * d).sum(1, true) + kEpsilon).mul_(n).reciprocal_();
    d = ((c * r).sum(0) + kEpsilon).mul_(e).reciprocal_();
    is_changing = (d - last).abs().mean().item<float>() > kTolerance;
  }
  return std::get<1>((c * d).topk(k, 1));
}

}  // namespace colonnade::ops
