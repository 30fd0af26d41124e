// See router.h.
#include "colonnade/layers/moe/router.h"

#include <ATen/ATen.h>

#include "colonnade/base/error.h"
#include "colonnade/layers/replicated_linear.h"
#include "colonnade/layers/residual.h"
#include "colonnade/layout/expert_capacity.h"
#include "colonnade/ops/attach_loss.h"
#include "colonnade/ops/capacity.h"

namespace colonnade::layers {
namespace {

ops::RouteArgs route_args(const config::Moe& moe) {
  ops::RouteArgs args;
  args.k = moe.router_topk;
  if (moe.uses_sinkhorn()) {
    args.kind = args.k == 1 ? kernels::ScoreKind::kSigmoid : kernels::ScoreKind::kSoftmax;
    args.normalise = false;
    return args;
  }
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

/// Tokens per expert of each sequence [b, e], from experts [s * b, k]; index e: none.
at::Tensor tokens_per_expert(const at::Tensor& experts, std::int64_t sequences, std::int64_t count,
                             const at::TensorOptions& options) {
  if (experts.is_meta()) return at::zeros({sequences, count}, options);
  const at::Tensor counts = at::zeros({sequences, count + 1}, options);
  const at::Tensor by_sequence =
      experts.view({-1, sequences, experts.size(1)}).permute({1, 0, 2}).reshape({sequences, -1});
  return counts.scatter_add(1, by_sequence, at::ones(by_sequence.sizes(), options)).narrow(1, 0, count);
}

}  // namespace

Router::Router(const layout::MoeParams& params, const config::Model& model, const Context& context)
    : weight(context.make(params.router)),
      bias(context.make(params.router_bias)),
      expert_bias(context.make(params.expert_bias)),
      moe_(model.moe),
      args_(route_args(model.moe)),
      jitter_key_(dropout_stream(context.seed, params.router.name)),
      radius_key_(dropout_stream(context.seed, params.router.name + " / radius")),
      angle_key_(dropout_stream(context.seed, params.router.name + " / angle")),
      rows_(context),
      sp_group_(context.sequence_parallel ? context.tp : comm::Group()),
      token_ranks_(context.token_ranks) {
  for (std::size_t i = 0; i < moe_.router_load_balancing_type.size(); ++i) {
    const std::string& kind = moe_.router_load_balancing_type[i];
    const double coefficient = i < moe_.aux_loss_coeff.size() ? moe_.aux_loss_coeff[i] : 0;
    if (coefficient == 0 || kind == "none" || kind == "sinkhorn") continue;
    if (kind == "seq_aux_loss")
      balancing_losses_.push_back({"seq_load_balancing_loss", coefficient, LossScope::kSequence});
    else if (kind == "global_aux_loss")
      balancing_losses_.push_back({"global_load_balancing_loss", coefficient, LossScope::kStep});
    else
      balancing_losses_.push_back({"load_balancing_loss", coefficient, LossScope::kMicroBatch});
  }
}

at::Tensor Router::with_jitter(const at::Tensor& x, const tensor::Pass& pass) const {
  if (!pass.training || moe_.input_jitter_eps == 0) return x;
  return ops::jitter(x, moe_.input_jitter_eps, dropout_key(jitter_key_, rows_, x, pass));
}

/// Standard normal numbers in place of logits [s * b, e], with a straight-through gradient.
at::Tensor Router::random_logits(const at::Tensor& logits, std::int64_t batch,
                                 const tensor::Pass& pass) const {
  const at::Tensor by_sample = logits.detach().view({-1, batch, logits.size(1)});
  const at::Tensor numbers =
      ops::normal_like(by_sample, dropout_key(radius_key_, rows_, by_sample, pass), angle_key_);
  return numbers.view(logits.sizes()) + (logits - logits.detach());
}

/// Sinkhorn assignment of the rows of logits [n, e]; padding rows, bool [n], take no part and get expert 0.
at::Tensor Router::sinkhorn_assignment(const at::Tensor& logits, const at::Tensor& padding) const {
  if (!padding.defined() || padding.is_meta()) return ops::sinkhorn_experts(logits.detach(), args_.k);
  const at::Tensor tokens = padding.logical_not().nonzero().view(-1);
  return at::zeros({logits.size(0), args_.k}, logits.options().dtype(at::kLong))
      .index_copy_(0, tokens, ops::sinkhorn_experts(logits.detach().index_select(0, tokens), args_.k));
}

/// The given experts of the rows of logits [n, e]. Synchronizes with the device.
at::Tensor Router::replayed_choice(const tensor::RoutingChoices& routing, const at::Tensor& logits) const {
  const auto found = routing.by_router.find(weight->spec.name);
  COL_CHECK(
      found != routing.by_router.end(),
      "{}: a replayed micro-batch must have choices of every router; got none of this one; record them, "
      "or leave routing empty",
      weight->spec.name);
  const at::Tensor choice = found->second.to(logits.device()).contiguous();
  COL_CHECK(
      choice.is_meta() || choice.numel() == 0 ||
          (choice.min().item<std::int64_t>() >= 0 && choice.max().item<std::int64_t>() < logits.size(1)),
      "{}: replayed choices must be in [0, {}); got others; record them with this number of experts",
      weight->spec.name, logits.size(1));
  return choice;
}

/// Experts of each token after dropping pairs over capacity.
at::Tensor Router::drop_over_capacity(const ops::Routing& routing) const {
  const auto keep = moe_.token_drop_policy == config::TokenDropPolicy::kProbs ? ops::DropPolicy::kProbs
                                                                              : ops::DropPolicy::kPosition;
  return ops::apply_capacity(routing.experts, routing.weights, routing.scores.size(1), routing.capacity,
                             keep);
}

void Router::count(const at::Tensor& experts, const at::Tensor& routed, const tensor::Pass& pass) {
  const std::int64_t all = weight->value.size(0);
  if (expert_bias && !pass.recomputing && !moe_.pad_expert_input_to_capacity) {
    const at::Tensor counts = tokens_per_expert(routed, 1, all, expert_bias->value.options())[0];
    expert_tokens_ = expert_tokens_.defined() ? expert_tokens_ + counts : counts;
  }
  if (pass.report == nullptr) return;
  const auto options = at::dtype(at::kDouble).device(experts.device());
  tensor::add(pass.report->counts, kExpertTokens + weight->spec.name,
              tokens_per_expert(experts, 1, all, options));
  if (moe_.expert_capacity_factor)
    tensor::add(pass.report->counts, kKeptTokens + weight->spec.name,
                tokens_per_expert(routed, 1, all, options));
}

ops::Routing Router::forward(const at::Tensor& x, const tensor::Pass& pass) {
  at::Tensor logits = fp32_linear(with_jitter(x, pass).reshape({-1, x.size(-1)}), *weight, bias.get());
  if (moe_.router_force_load_balancing) logits = random_logits(logits, x.size(1), pass);
  const LossContext losses = loss_context(logits, pass);
  ops::RouteArgs args = args_;
  if (expert_bias) args.bias = expert_bias->value;
  const bool replays = pass.routing && pass.routing->replay;
  if (replays)
    args.assigned = replayed_choice(*pass.routing, logits);
  else if (moe_.uses_sinkhorn() && pass.training)
    args.assigned = sinkhorn_assignment(logits, losses.padding);
  ops::Routing routing = ops::route(logits, args);
  if (pass.routing && !replays) pass.routing->by_router[weight->spec.name] = routing.experts.detach();
  if (pass.cache == nullptr) routing.capacity = layout::expert_capacity(moe_, logits.size(0));
  if (losses.padding.defined()) {
    routing.experts = routing.experts.masked_fill(losses.padding.unsqueeze(-1), weight->value.size(0));
    if (routing.capacity == 0) routing.capacity = logits.size(0);  // a token chooses an expert at most once
  }
  const bool drops = moe_.expert_capacity_factor && pass.cache == nullptr;
  const at::Tensor experts = drops ? drop_over_capacity(routing) : routing.experts;
  if (pass.training) {
    count(routing.experts, experts, pass);
    for (const BalancingLoss& loss : balancing_losses_)
      routing.weights = add_balancing_loss(routing, loss, x.size(1), losses);
    if (moe_.z_loss_coeff > 0) routing.weights = add_z_loss(routing.weights, logits, losses);
  }
  routing.experts = experts;
  return routing;
}

Router::LossContext Router::loss_context(const at::Tensor& rows, const tensor::Pass& pass) const {
  const tensor::SequenceShare& share = pass.batch.share();
  const int context_ranks = rows_.cp_group(pass.batch).size();
  LossContext context{.pass = pass, .ranks = sp_group_.size() * context_ranks};
  context.tokens = static_cast<double>(rows.size(0)) * context.ranks;
  if (share.ranks == 0) return context;
  context.padding = rows_.padding(pass.batch, rows.size(0), rows.device());
  context.tokens = static_cast<double>(std::max<std::int64_t>(share.tokens, 1));
  context.weight = static_cast<double>(share.tokens) / static_cast<double>(share.sample);
  context.report_weight = context.weight / context_ranks;
  return context;
}

/// All-reduces sums over the ranks that share the micro-batch's sequences.
void Router::all_reduce_sums(at::Tensor& sums, const LossContext& context, const char* what) const {
  for (const comm::Group* group : {&sp_group_, &rows_.cp_group(context.pass.batch)})
    group->all_reduce(sums, weight->spec.name + " / " + what).wait();
}

/// `own`: this rank's addend of the loss, `whole`: the loss, both without the coefficient.
at::Tensor Router::add_loss(const at::Tensor& weights, const at::Tensor& own, const at::Tensor& whole,
                            double coefficient, const std::string& name, const LossContext& context) const {
  if (tensor::Report* report = context.pass.report; report != nullptr) {
    const tensor::MetricSum sum = tensor::metric_sum(whole.detach() * context.report_weight,
                                                     at::full({}, context.report_weight, whole.options()));
    tensor::add(report->metric_sums, name, sum);
    if (moe_.per_layer_logging)
      tensor::add(report->metric_sums, fmt::format("{}{}/{}", kLayerLoss, name, weight->spec.name), sum);
  }
  return ops::attach_loss(weights, own, coefficient * context.weight * context.pass.grad_scale);
}

/// Running mean of `tokens` over this step's micro-batches up to this one. A recomputed forward pass gets the
/// mean of the original one; recomputation follows the order of the original passes.
at::Tensor Router::step_mean(const at::Tensor& tokens, bool again) {
  if (!again) {
    step_tokens_ = step_tokens_.defined() ? step_tokens_ + tokens : tokens;
    step_means_.push_back(step_tokens_ / static_cast<double>(step_means_.size() + 1));
    return step_means_.back();
  }
  COL_CHECK(recomputed_passes_ < step_means_.size(),
            "{}: a recomputed pass must follow its original; got repetition {} of {} micro-batches",
            weight->spec.name, recomputed_passes_ + 1, step_means_.size());
  return step_means_[recomputed_passes_++];
}

at::Tensor Router::add_balancing_loss(const ops::Routing& routing, const BalancingLoss& loss,
                                      std::int64_t sequences, const LossContext& context) {
  const std::int64_t experts = routing.scores.size(1);
  // Load-loss loss of Fedus et al. 2021 (Switch Transformer), eq. 4, extended to top-k as in Megatron's
  // switch_load_balancing_loss_func: E / (k T^2) sum_e P_e f_e. T: tokens, E: experts, P_e: sum of the
  // tokens' normalized scores for e, f_e: tokens with e among their top k. The gradient flows through P_e
  // only.
  const std::int64_t sequence_count = loss.scope == LossScope::kSequence ? sequences : 1;
  at::Tensor scores = routing.scores;
  if (args_.kind != kernels::ScoreKind::kSoftmax) scores = scores / (scores.sum(-1, true) + 1e-20);
  if (context.padding.defined()) scores = scores.masked_fill(context.padding.unsqueeze(-1), 0);
  const at::Tensor share = scores.view({-1, sequence_count, experts}).sum(0);
  const bool replays = context.pass.routing && context.pass.routing->replay;
  const bool constrained = args_.groups > 1 || expert_bias != nullptr || replays;
  at::Tensor top_k = constrained ? std::get<1>(scores.detach().topk(args_.k, -1)) : routing.experts;
  if (constrained && context.padding.defined())
    top_k = top_k.masked_fill(context.padding.unsqueeze(-1), experts);
  at::Tensor sums =
      at::stack({tokens_per_expert(top_k, sequence_count, experts, share.options()), share.detach()});
  double replicas = 1;  // data-parallel ranks in the sums
  at::Tensor expert_tokens = sums[0];
  if (loss.scope == LossScope::kStep) {
    token_ranks_.all_reduce(sums, weight->spec.name + " / balance of the step").wait();
    replicas = static_cast<double>(token_ranks_.size()) / context.ranks;
    expert_tokens = step_mean(sums[0], context.pass.recomputing);
  } else {
    all_reduce_sums(sums, context, "balance");
  }
  const double tokens = context.tokens / static_cast<double>(sequence_count);
  const double factor = static_cast<double>(experts) / (static_cast<double>(args_.k) * tokens * tokens *
                                                        static_cast<double>(sequence_count));
  return add_loss(routing.weights, (share * expert_tokens).sum() * (factor / replicas),
                  (sums[1] * expert_tokens).sum() * (factor / (replicas * replicas)), loss.coefficient,
                  loss.name, context);
}

at::Tensor Router::add_z_loss(const at::Tensor& weights, const at::Tensor& logits,
                              const LossContext& context) const {
  at::Tensor squares = log_sum_exp(logits).square();
  if (context.padding.defined()) squares = squares.masked_fill(context.padding, 0);
  const at::Tensor own = squares.sum() / context.tokens;
  at::Tensor whole = own.detach().clone();
  all_reduce_sums(whole, context, "z-loss");
  return add_loss(weights, own, whole, moe_.z_loss_coeff, "z_loss", context);
}

void Router::finish_step() {
  step_tokens_ = at::Tensor();
  step_means_.clear();
  recomputed_passes_ = 0;
  if (!expert_bias || !expert_tokens_.defined()) return;
  token_ranks_.all_reduce(expert_tokens_, weight->spec.name + " / tokens of each expert").wait();
  expert_bias->value.add_((expert_tokens_.mean() - expert_tokens_).sign_(), moe_.router_bias_update_rate);
  expert_tokens_ = at::Tensor();
}

}  // namespace colonnade::layers
