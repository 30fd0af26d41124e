// See router.h.
#include "colonnade/layers/moe/router.h"

#include <ATen/ATen.h>

#include "colonnade/base/error.h"
#include "colonnade/layers/moe/wide_product.h"
#include "colonnade/layers/residual.h"
#include "colonnade/layout/expert_capacity.h"
#include "colonnade/ops/attach_loss.h"
#include "colonnade/ops/capacity.h"

namespace colonnade::layers {
namespace {

ops::RouteArgs route_args(const config::Moe& moe) {
  ops::RouteArgs args;
  args.k = moe.router_topk;
  if (moe.sinkhorn()) {
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

/// Tokens of each sequence that chose each expert [b, e], of experts [s * b, k]; e: none.
at::Tensor chosen(const at::Tensor& experts, std::int64_t sequences, std::int64_t count,
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
      noise_key_(dropout_stream(context.seed, params.router.name)),
      radius_key_(dropout_stream(context.seed, params.router.name + " / radius")),
      angle_key_(dropout_stream(context.seed, params.router.name + " / angle")),
      rows_(context),
      tensor_(context.sequence_parallel ? context.tp : comm::Group()),
      readers_(context.readers) {
  for (std::size_t i = 0; i < moe_.router_load_balancing_type.size(); ++i) {
    const std::string& kind = moe_.router_load_balancing_type[i];
    const double coefficient = i < moe_.aux_loss_coeff.size() ? moe_.aux_loss_coeff[i] : 0;
    if (coefficient == 0 || kind == "none" || kind == "sinkhorn") continue;
    if (kind == "seq_aux_loss")
      balances_.push_back({"seq_load_balancing_loss", coefficient, Over::kSequence});
    else if (kind == "global_aux_loss")
      balances_.push_back({"global_load_balancing_loss", coefficient, Over::kStep});
    else
      balances_.push_back({"load_balancing_loss", coefficient, Over::kMicroBatch});
  }
}

at::Tensor Router::with_noise(const at::Tensor& x, const tensor::Pass& pass) const {
  if (!pass.training || moe_.input_jitter_eps == 0) return x;
  return ops::jitter(x, moe_.input_jitter_eps, dropout_key(noise_key_, rows_, x, pass));
}

/// Normal numbers in place of logits [s * b, e], whose gradients they pass on.
at::Tensor Router::random_logits(const at::Tensor& logits, std::int64_t batch,
                                 const tensor::Pass& pass) const {
  const at::Tensor by_sample = logits.detach().view({-1, batch, logits.size(1)});
  const at::Tensor numbers =
      ops::normal_like(by_sample, dropout_key(radius_key_, rows_, by_sample, pass), angle_key_);
  return numbers.view(logits.sizes()) + (logits - logits.detach());
}

/// Experts of the rows of logits [n, e] by Sinkhorn's algorithm; rows that are padding, bool [n], get any.
at::Tensor Router::assigned(const at::Tensor& logits, const at::Tensor& padding) const {
  if (!padding.defined() || padding.is_meta()) return ops::sinkhorn_experts(logits.detach(), args_.k);
  const at::Tensor tokens = padding.logical_not().nonzero().view(-1);
  return at::zeros({logits.size(0), args_.k}, logits.options().dtype(at::kLong))
      .index_copy_(0, tokens, ops::sinkhorn_experts(logits.detach().index_select(0, tokens), args_.k));
}

/// The experts that take each token.
at::Tensor Router::kept(const ops::Routing& routing) const {
  const auto keep = moe_.token_drop_policy == config::TokenDropPolicy::kProbs ? ops::Keep::kLargestWeights
                                                                              : ops::Keep::kFirstTokens;
  return ops::within_capacity(routing.experts, routing.weights, routing.scores.size(1), routing.capacity,
                              keep);
}

void Router::count(const at::Tensor& experts, const at::Tensor& kept, const tensor::Pass& pass) {
  const std::int64_t all = weight->value.size(0);
  if (expert_bias && !pass.again && !moe_.pad_expert_input_to_capacity) {
    const at::Tensor taken = chosen(kept, 1, all, expert_bias->value.options())[0];
    taken_ = taken_.defined() ? taken_ + taken : taken;
  }
  if (pass.report == nullptr) return;
  const auto options = at::dtype(at::kDouble).device(experts.device());
  tensor::add(pass.report->counts, kExpertTokens + weight->spec.name, chosen(experts, 1, all, options));
  if (moe_.expert_capacity_factor)
    tensor::add(pass.report->counts, kKeptTokens + weight->spec.name, chosen(kept, 1, all, options));
}

ops::Routing Router::forward(const at::Tensor& x, const tensor::Pass& pass) {
  at::Tensor logits = wide_product(with_noise(x, pass).reshape({-1, x.size(-1)}), *weight, bias.get());
  if (moe_.router_force_load_balancing) logits = random_logits(logits, x.size(1), pass);
  const Losses losses = losses_of(logits, pass);
  ops::RouteArgs args = args_;
  if (expert_bias) args.bias = expert_bias->value;
  if (moe_.sinkhorn() && pass.training) args.assigned = assigned(logits, losses.filling);
  ops::Routing routing = ops::route(logits, args);
  if (pass.cache == nullptr) routing.capacity = layout::expert_capacity(moe_, logits.size(0));
  if (losses.filling.defined()) {
    routing.experts = routing.experts.masked_fill(losses.filling.unsqueeze(-1), weight->value.size(0));
    if (routing.capacity == 0) routing.capacity = logits.size(0);  // no expert is chosen twice by a token
  }
  const bool drops = moe_.expert_capacity_factor && pass.cache == nullptr;
  const at::Tensor experts = drops ? kept(routing) : routing.experts;
  if (pass.training) {
    count(routing.experts, experts, pass);
    for (const Balance& balance : balances_)
      routing.weights = add_balance(routing, balance, x.size(1), losses);
    if (moe_.z_loss_coeff > 0) routing.weights = add_z_loss(routing.weights, logits, losses);
  }
  routing.experts = experts;
  return routing;
}

Router::Losses Router::losses_of(const at::Tensor& rows, const tensor::Pass& pass) const {
  const tensor::Share& share = pass.batch.share();
  const int contexts = rows_.others(pass.batch).size();
  Losses of{.pass = pass, .parts = tensor_.size() * contexts};
  of.tokens = static_cast<double>(rows.size(0)) * of.parts;
  if (share.ranks == 0) return of;
  of.filling = rows_.filling(pass.batch, rows.size(0), rows.device());
  of.tokens = static_cast<double>(std::max<std::int64_t>(share.tokens, 1));
  of.weight = static_cast<double>(share.tokens) / static_cast<double>(share.sample);
  of.told_weight = of.weight / contexts;
  return of;
}

/// Over the ranks that hold the other parts of the sequence.
void Router::sum_parts(at::Tensor& sums, const Losses& of, const char* what) const {
  for (const comm::Group* group : {&tensor_, &rows_.others(of.pass.batch)})
    group->all_reduce(sums, weight->spec.name + " / " + what).wait();
}

/// `own`: this rank's share of the loss, `whole`: the loss, both without the coefficient.
at::Tensor Router::add_loss(const at::Tensor& weights, const at::Tensor& own, const at::Tensor& whole,
                            double coefficient, const std::string& name, const Losses& of) const {
  if (of.pass.report != nullptr)
    tensor::add(
        of.pass.report->tallies, name,
        tensor::tally(whole.detach() * of.told_weight, at::full({}, of.told_weight, whole.options())));
  return ops::attach_loss(weights, own, coefficient * of.weight * of.pass.grad_scale);
}

/// The mean over the micro-batches of this step up to the one whose the `tokens` are. A micro-batch that is
/// passed again for its backward pass, in the order of the first passes, gets the mean of its first pass.
at::Tensor Router::mean_of_step(const at::Tensor& tokens, bool again) {
  if (!again) {
    tokens_of_step_ = tokens_of_step_.defined() ? tokens_of_step_ + tokens : tokens;
    means_of_step_.push_back(tokens_of_step_ / static_cast<double>(means_of_step_.size() + 1));
    return means_of_step_.back();
  }
  COL_CHECK(repeated_ < means_of_step_.size(),
            "{}: a pass that is repeated must follow its first; got repetition {} of {} micro-batches",
            weight->spec.name, repeated_ + 1, means_of_step_.size());
  return means_of_step_[repeated_++];
}

at::Tensor Router::add_balance(const ops::Routing& routing, const Balance& balance, std::int64_t sequences,
                               const Losses& of) {
  const std::int64_t experts = routing.scores.size(1);
  const std::int64_t apart = balance.over == Over::kSequence ? sequences : 1;
  at::Tensor scores = routing.scores;
  if (args_.kind != kernels::ScoreKind::kSoftmax) scores = scores / (scores.sum(-1, true) + 1e-20);
  if (of.filling.defined()) scores = scores.masked_fill(of.filling.unsqueeze(-1), 0);
  const at::Tensor share = scores.view({-1, apart, experts}).sum(0);
  const bool steered = args_.groups > 1 || expert_bias != nullptr;
  at::Tensor best = steered ? std::get<1>(scores.detach().topk(args_.k, -1)) : routing.experts;
  if (steered && of.filling.defined()) best = best.masked_fill(of.filling.unsqueeze(-1), experts);
  at::Tensor sums = at::stack({chosen(best, apart, experts, share.options()), share.detach()});
  double replicas = 1;  // data ranks that are summed over
  at::Tensor tokens_of = sums[0];
  if (balance.over == Over::kStep) {
    readers_.all_reduce(sums, weight->spec.name + " / balance of the step").wait();
    replicas = static_cast<double>(readers_.size()) / of.parts;
    tokens_of = mean_of_step(sums[0], of.pass.again);
  } else {
    sum_parts(sums, of, "balance");
  }
  const double tokens = of.tokens / static_cast<double>(apart);
  const double factor = static_cast<double>(experts) /
                        (static_cast<double>(args_.k) * tokens * tokens * static_cast<double>(apart));
  return add_loss(routing.weights, (share * tokens_of).sum() * (factor / replicas),
                  (sums[1] * tokens_of).sum() * (factor / (replicas * replicas)), balance.coefficient,
                  balance.name, of);
}

at::Tensor Router::add_z_loss(const at::Tensor& weights, const at::Tensor& logits, const Losses& of) const {
  at::Tensor squares = log_sum_exp(logits).square();
  if (of.filling.defined()) squares = squares.masked_fill(of.filling, 0);
  const at::Tensor own = squares.sum() / of.tokens;
  at::Tensor whole = own.detach().clone();
  sum_parts(whole, of, "z-loss");
  return add_loss(weights, own, whole, moe_.z_loss_coeff, "z_loss", of);
}

void Router::finish_step() {
  tokens_of_step_ = at::Tensor();
  means_of_step_.clear();
  repeated_ = 0;
  if (!expert_bias || !taken_.defined()) return;
  readers_.all_reduce(taken_, weight->spec.name + " / tokens of each expert").wait();
  expert_bias->value.add_((taken_.mean() - taken_).sign_(), moe_.router_bias_update_rate);
  taken_ = at::Tensor();
}

}  // namespace colonnade::layers
