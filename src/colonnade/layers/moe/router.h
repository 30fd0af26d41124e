// Which experts a token goes to, how much each counts, and the losses that keep all of them busy.
// Source: Megatron's core/transformer/moe/{router,moe_utils}.py; Fedus et al. 2021 (jitter, capacity); Zoph
// et al. 2022 (z-loss); DeepSeek-V2 2024 (loss per sequence); Qiu et al. 2025 (loss over a step).
#pragma once

#include <string>
#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/layers/context.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/ops/routing.h"
#include "colonnade/tensor/block.h"

namespace colonnade::layers {

/// logits = x W^T + b in fp32 (float64 for float64), b only with biases of linear layers; then ops::route.
///
/// With --moe-input-jitter-eps, in training, x is times 1 + eps (2 u - 1), u uniform and drawn as dropout's
/// numbers are: by name, sample, position and channel, so that it is one noise in every layout (Megatron
/// draws anew in evaluations and differently on each rank).
///
/// With --moe-router-load-balancing-type sinkhorn, in training, a token takes the k experts of
/// ops::sinkhorn_experts over the tokens of one call on one rank, padding aside; otherwise the k of the
/// largest scores. Scores are sigmoids of the logits for k = 1, else the softmax over all experts, whatever
/// --moe-router-score-function says; weights are the chosen scores, neither normalised nor scaled. Layouts
/// with other sequence or context parallelism, and other micro-batches, assign other experts, as in Megatron.
///
/// With --moe-router-force-load-balancing standard normal numbers replace the logits, in training and
/// evaluation, and the logits get their gradients (a straight-through estimator). The numbers are drawn as
/// dropout's are: by seed, name, sample, position and expert. As samples differ in each step, so do they.
/// Megatron draws others on each rank.
///
/// With --moe-expert-capacity-factor an expert takes at most layout::expert_capacity of the tokens of one
/// call on one rank, in training and evaluation; the other pairs are dropped: their weights count as 0, and
/// nobody else's grow. Tokens of a call are those of one micro-batch on one rank: layouts with other sequence
/// or context parallelism, and other micro-batches, drop others. Losses look at the choice before that, the
/// expert bias at what is kept, both as in Megatron. Nothing is dropped while text is generated.
///
/// Losses, in training, with E experts, k of them a token, and T tokens of a micro-batch over all tensor
/// and context ranks, P_e the sum of the tokens' scores for e and f_e the tokens that have e among their k
/// best scores, whatever groups and bias let them choose:
///
///     aux_loss       E / (k T^2) sum_e P_e f_e
///     seq_aux_loss   the same for each sequence with its own T, averaged over sequences
///     global_aux_loss  E / k sum_e (P_e / T) (f_e / T) with P, f and T over all data ranks, f the mean over
///                    this step's micro-batches so far
///     z_loss         mean over the tokens of log(sum_e exp(logit))^2
///
/// Where ranks share sequences by their lengths (tensor::Share) a micro-batch is a sequence, and each loss
/// counts as much as the sequence's tokens are of its sample: the z-loss is the samples', aux_loss and
/// seq_aux_loss are those of sequences, without what fills them up. Such rows go to no expert.
///
/// Scores are the softmax over all experts, or the other kinds' over their sum. Each loss times its
/// coefficient is attached to the weights; without it, it is reported as `load_balancing_loss`,
/// `seq_load_balancing_loss`, `global_load_balancing_loss`, `z_loss`, a mean over layers and micro-batches.
/// Megatron's gradient of global_aux_loss is that of the whole loss over the number of data ranks; here it is
/// the whole one's, whatever their number. Which micro-batches f has seen depends on that number in both.
///
/// In training the tokens that chose each expert are reported as counts (kExpertTokens), and with a capacity
/// those that were kept (kKeptTokens), each token on the rank whose it is.
///
/// The expert bias b is added to the scores for the choice alone. After each step, with f_e the tokens that
/// chose e over all its micro-batches and ranks, b_e += rate * sign(mean f - f_e) (DeepSeek-V3 2024); with
/// --moe-pad-expert-input-to-capacity, where all experts compute equally many rows, it stays, as in Megatron.
///
/// Communication: with sequence parallelism sums over tp, and over cp, once a loss, that over a step over all
/// readers of tokens; with a bias, one sum over these a step.
class Router {
 public:
  Router(const layout::MoeParams& params, const config::Model& model, const Context& context);
  /// x [s, b, h], or this rank's [s / tp, b, h], normed -> experts and weights of its rows in order.
  [[nodiscard]] ops::Routing forward(const at::Tensor& x, const tensor::Pass& pass);

  /// Moves the bias and begins the loss over a step anew. Collective over the readers of tokens.
  void finish_step();

  std::unique_ptr<tensor::Parameter> weight;       ///< [experts, h]
  std::unique_ptr<tensor::Parameter> bias;         ///< [experts]; null: none
  std::unique_ptr<tensor::Parameter> expert_bias;  ///< [experts]; null: none

 private:
  /// Whose losses a call adds to.
  struct Losses {
    const tensor::Pass& pass;
    at::Tensor filling;      ///< bool [rows]: those that only fill up; undefined: none
    double tokens = 0;       ///< of the micro-batch on all ranks that share it
    double weight = 1;       ///< of a loss among those of the step
    int parts = 1;           ///< ranks that share the micro-batch
    double told_weight = 1;  ///< of what each context rank reports
  };
  [[nodiscard]] Losses losses_of(const at::Tensor& rows, const tensor::Pass& pass) const;
  void sum_parts(at::Tensor& sums, const Losses& of, const char* what) const;
  enum class Over : std::uint8_t { kMicroBatch, kSequence, kStep };
  struct Balance {
    std::string name;
    double coefficient = 0;
    Over over = Over::kMicroBatch;
  };
  [[nodiscard]] at::Tensor with_noise(const at::Tensor& x, const tensor::Pass& pass) const;
  [[nodiscard]] at::Tensor random_logits(const at::Tensor& logits, std::int64_t batch,
                                         const tensor::Pass& pass) const;
  [[nodiscard]] at::Tensor assigned(const at::Tensor& logits, const at::Tensor& padding) const;
  [[nodiscard]] at::Tensor kept(const ops::Routing& routing) const;
  void count(const at::Tensor& chosen, const at::Tensor& kept, const tensor::Pass& pass);
  [[nodiscard]] at::Tensor mean_of_step(const at::Tensor& tokens, bool again);
  [[nodiscard]] at::Tensor add_loss(const at::Tensor& weights, const at::Tensor& own, const at::Tensor& whole,
                                    double coefficient, const std::string& name, const Losses& of) const;
  [[nodiscard]] at::Tensor add_balance(const ops::Routing& routing, const Balance& balance,
                                       std::int64_t sequences, const Losses& of);
  [[nodiscard]] at::Tensor add_z_loss(const at::Tensor& weights, const at::Tensor& logits,
                                      const Losses& of) const;

  config::Moe moe_;
  ops::RouteArgs args_;
  std::uint64_t noise_key_;
  std::uint64_t radius_key_, angle_key_;  ///< of random logits
  SharedRows rows_;
  std::vector<Balance> balances_;
  comm::Group tensor_;         ///< ranks that hold the other parts of this one's chunks
  comm::Group readers_;        ///< ranks with tokens of this step
  at::Tensor taken_;           ///< tokens of this step that each expert takes, on this rank; with a bias
  at::Tensor tokens_of_step_;  ///< that chose each expert, on all; with a loss over a step
  std::vector<at::Tensor> means_of_step_;  ///< after each of its micro-batches
  std::size_t repeated_ = 0;               ///< micro-batches passed again for their backward pass
};

/// What a router's counts are called, before the name of its weight: [experts] each.
inline constexpr const char* kExpertTokens = "expert_tokens/";
inline constexpr const char* kKeptTokens = "kept_tokens/";

}  // namespace colonnade::layers
