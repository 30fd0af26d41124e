// MoE router: top-k expert choice, weights and load-balancing losses.
// Source: Megatron's core/transformer/moe/{router,moe_utils}.py; Fedus et al. 2021 (load-balancing loss,
// jitter, capacity); Zoph et al. 2022 (z-loss); DeepSeek-V2 2024 (sequence loss); Qiu et al. 2025
// (global-batch loss).
#pragma once

#include <string>
#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/layers/context.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/ops/routing.h"
#include "colonnade/tensor/block.h"

namespace colonnade::layers {

/// logits = x W^T + b in fp32 (float64 for float64), b only if linear layers have biases; then ops::route.
///
/// --moe-input-jitter-eps, in training: x is multiplied by 1 + eps (2 u - 1), u uniform. u is a function of
/// name, sample, position and channel, as dropout masks are, so the jitter is the same in every layout
/// (Megatron's differs between ranks and also applies in evaluation).
///
/// --moe-router-load-balancing-type sinkhorn, in training: a token takes the k experts of
/// ops::sinkhorn_experts over the tokens of one call on one rank, without padding; in evaluation those of the
/// k largest scores. Scores are sigmoids of the logits for k = 1, else the softmax over all experts, whatever
/// --moe-router-score-function says; weights are the chosen scores, neither normalized nor scaled. Other
/// sequence or context parallel sizes and other micro-batch sizes assign other experts, as in Megatron.
///
/// With Pass::routing the choices of k experts are recorded, also in evaluation, or given ones replace the
/// router's own; weights are those of the given experts. Losses use the router's own choice, as in Megatron.
/// A recomputed pass replays what its original replayed. Source: Megatron's
/// core/transformer/moe/router_replay.py.
///
/// --moe-router-force-load-balancing: standard normal numbers replace the logits in training and evaluation,
/// and the logits get their gradients (straight-through estimator). The numbers are a function of seed, name,
/// sample, position and expert, so they change with the samples of each step. Megatron's differ between
/// ranks.
///
/// --moe-expert-capacity-factor: in training and evaluation an expert takes at most layout::expert_capacity
/// of the tokens of one call on one rank; other token-expert pairs are dropped. Their weights count as 0 and
/// no other weight grows. A call covers one micro-batch on one rank, so other sequence or context parallel
/// sizes and other micro-batch sizes drop other pairs. Losses use the choice before dropping, the expert bias
/// the one after it, both as in Megatron. Generation drops nothing.
///
/// Losses, in training, with E experts, top k, T tokens of a micro-batch over all tensor and context ranks,
/// P_e the sum of the tokens' scores for e and f_e the number of tokens with e among their k best scores,
/// without expert groups and bias:
///
///     aux_loss         E / (k T^2) sum_e P_e f_e
///     seq_aux_loss     the same per sequence with its own T, averaged over sequences
///     global_aux_loss  E / k sum_e (P_e / T) (f_e / T) with P, f and T over all data ranks, f the mean over
///                      this step's micro-batches so far
///     z_loss           mean over tokens of log(sum_e exp(logit))^2
///
/// With hybrid context parallelism (tensor::SequenceShare) a micro-batch of a model with aux losses is one
/// sequence, and each loss is weighted by the sequence's share of its sample's tokens: the z-loss is that of
/// samples, aux_loss and seq_aux_loss are those of sequences, without padding. Padding rows go to no expert.
///
/// Scores in losses are normalized over all experts: the softmax, or other score functions over their sum.
/// Each loss, times its coefficient, is attached to the weights; without the coefficient it is reported as
/// `load_balancing_loss`, `seq_load_balancing_loss`, `global_load_balancing_loss` or `z_loss`, a mean over
/// layers and micro-batches; with --moe-per-layer-logging also for each layer (kLayerLoss). Megatron divides
/// the gradient of global_aux_loss by the number of data ranks; here it is the gradient of the full loss.
/// Which micro-batches f covers depends on that number in both.
///
/// In training, tokens per expert are reported as counts (kExpertTokens), with a capacity also those after
/// dropping (kKeptTokens). Each token is counted on the rank that holds it.
///
/// The expert bias b is added to the scores for the choice only. After each step, with f_e the tokens routed
/// to e over all its micro-batches and ranks, b_e += rate * sign(mean f - f_e) (DeepSeek-V3 2024). With
/// --moe-pad-expert-input-to-capacity, where all experts compute equally many rows, it is not updated, as in
/// Megatron.
///
/// Communication: per loss, all-reduces over tp (sequence parallelism) and cp, for global_aux_loss over all
/// token ranks; with an expert bias, one all-reduce over the token ranks per step.
class Router {
 public:
  Router(const layout::MoeParams& params, const config::Model& model, const Context& context);
  /// x [s, b, h], or this rank's [s / tp, b, h], normed -> experts and weights of its rows in order.
  [[nodiscard]] ops::Routing forward(const at::Tensor& x, const tensor::Pass& pass);

  /// Updates the expert bias and resets the state of global_aux_loss. Collective over the token ranks.
  void finish_step();

  std::unique_ptr<tensor::Parameter> weight;       ///< [experts, h]
  std::unique_ptr<tensor::Parameter> bias;         ///< [experts]; null: none
  std::unique_ptr<tensor::Parameter> expert_bias;  ///< [experts]; null: none

 private:
  /// Normalization of the losses of one call.
  struct LossContext {
    const tensor::Pass& pass;
    at::Tensor padding;        ///< bool [rows], true for padding; undefined: none
    double tokens = 0;         ///< tokens of the micro-batch over all ranks that share it
    double weight = 1;         ///< weight of the losses within the step
    int ranks = 1;             ///< ranks that share the micro-batch
    double report_weight = 1;  ///< weight of the reported loss on each context rank
  };
  [[nodiscard]] LossContext loss_context(const at::Tensor& rows, const tensor::Pass& pass) const;
  void all_reduce_sums(at::Tensor& sums, const LossContext& context, const char* what) const;
  enum class LossScope : std::uint8_t { kMicroBatch, kSequence, kStep };
  struct BalancingLoss {
    std::string name;
    double coefficient = 0;
    LossScope scope = LossScope::kMicroBatch;
  };
  [[nodiscard]] at::Tensor with_jitter(const at::Tensor& x, const tensor::Pass& pass) const;
  [[nodiscard]] at::Tensor random_logits(const at::Tensor& logits, std::int64_t batch,
                                         const tensor::Pass& pass) const;
  [[nodiscard]] at::Tensor sinkhorn_assignment(const at::Tensor& logits, const at::Tensor& padding) const;
  [[nodiscard]] at::Tensor replayed_choice(const tensor::RoutingChoices& routing,
                                           const at::Tensor& logits) const;
  [[nodiscard]] at::Tensor drop_over_capacity(const ops::Routing& routing) const;
  void count(const at::Tensor& experts, const at::Tensor& routed, const tensor::Pass& pass);
  [[nodiscard]] at::Tensor step_mean(const at::Tensor& tokens, bool again);
  [[nodiscard]] at::Tensor add_loss(const at::Tensor& weights, const at::Tensor& own, const at::Tensor& whole,
                                    double coefficient, const std::string& name,
                                    const LossContext& context) const;
  [[nodiscard]] at::Tensor add_balancing_loss(const ops::Routing& routing, const BalancingLoss& loss,
                                              std::int64_t sequences, const LossContext& context);
  [[nodiscard]] at::Tensor add_z_loss(const at::Tensor& weights, const at::Tensor& logits,
                                      const LossContext& context) const;

  config::Moe moe_;
  ops::RouteArgs args_;
  std::uint64_t jitter_key_;
  std::uint64_t radius_key_, angle_key_;  ///< streams of random logits (Box-Muller)
  LocalRows rows_;
  std::vector<BalancingLoss> balancing_losses_;
  comm::Group sp_group_;                ///< tensor ranks that shard the sequence
  comm::Group token_ranks_;             ///< ranks that together hold all tokens of a step
  at::Tensor expert_tokens_;            ///< with an expert bias: tokens per expert of this step on this rank
  at::Tensor step_tokens_;              ///< with global_aux_loss: tokens per expert of this step on all ranks
  std::vector<at::Tensor> step_means_;  ///< mean of step_tokens_ after each micro-batch
  std::size_t recomputed_passes_ = 0;   ///< forward passes of this step that were recomputed
};

/// Prefixes of a router's counts [experts] in Report::counts, before its weight's name.
inline constexpr const char* kExpertTokens = "expert_tokens/";
inline constexpr const char* kKeptTokens = "kept_tokens/";
/// Prefix of a router's own losses in Report::metric_sums: "layer_loss/z_loss/<name of its weight>".
inline constexpr const char* kLayerLoss = "layer_loss/";

}  // namespace colonnade::layers
