// Which experts a token goes to, how much each counts, and the losses that keep all of them busy.
// Source: Megatron's core/transformer/moe/{router,moe_utils}.py; Fedus et al. 2021; Zoph et al. 2022
// (z-loss); DeepSeek-V2 2024 (loss per sequence).
#pragma once

#include <string>

#include "colonnade/config/model.h"
#include "colonnade/layers/context.h"
#include "colonnade/ops/routing.h"
#include "colonnade/plan/params/gpt.h"
#include "colonnade/tensor/block.h"

namespace colonnade::layers {

/// logits = x W^T + b in fp32 (float64 for float64), b only with biases of linear layers; then ops::route.
///
/// Losses, in training, with E experts, k of them a token, and T tokens of a micro-batch over all tensor
/// and context ranks, P_e the sum of the tokens' scores for e and f_e the tokens that have e among their k
/// best scores, whatever groups and bias let them choose:
///
///     aux_loss       E / (k T^2) sum_e P_e f_e
///     seq_aux_loss   the same for each sequence with its own T, averaged over sequences
///     z_loss         mean over the tokens of log(sum_e exp(logit))^2
///
/// Scores are the softmax over all experts, or the other kinds' over their sum. Each loss times its
/// coefficient is attached to the weights; without it, it is reported as `load_balancing_loss`,
/// `seq_load_balancing_loss`, `z_loss`, a mean over layers and micro-batches.
///
/// The expert bias b is added to the scores for the choice alone. After each step, with f_e the tokens that
/// chose e over all its micro-batches and ranks, b_e += rate * sign(mean f - f_e) (DeepSeek-V3 2024).
///
/// Communication: with sequence parallelism sums over tp, and over cp, once a loss; with a bias, one sum over
/// all readers of tokens a step.
class Router {
 public:
  Router(const plan::MoeParams& params, const config::Model& model, const Context& context);
  /// x [s, b, h], or this rank's [s / tp, b, h], normed -> experts and weights of its rows in order.
  [[nodiscard]] ops::Routing forward(const at::Tensor& x, const tensor::Pass& pass);

  /// Moves the bias. Collective over the readers of tokens.
  void finish_step();

  std::unique_ptr<tensor::Parameter> weight;       ///< [experts, h]
  std::unique_ptr<tensor::Parameter> bias;         ///< [experts]; null: none
  std::unique_ptr<tensor::Parameter> expert_bias;  ///< [experts]; null: none

 private:
  [[nodiscard]] int parts() const;
  void sum_parts(at::Tensor& sums, const char* what) const;
  struct Balance {
    std::string name;
    double coefficient = 0;
    bool per_sequence = false;
  };
  [[nodiscard]] at::Tensor add_loss(const at::Tensor& weights, const at::Tensor& own, const at::Tensor& whole,
                                    double coefficient, const std::string& name,
                                    const tensor::Pass& pass) const;
  [[nodiscard]] at::Tensor add_balance(const ops::Routing& routing, const Balance& balance,
                                       std::int64_t sequences, const tensor::Pass& pass) const;
  [[nodiscard]] at::Tensor add_z_loss(const at::Tensor& weights, const at::Tensor& logits,
                                      const tensor::Pass& pass) const;

  ops::RouteArgs args_;
  std::vector<Balance> balances_;
  double z_loss_;
  comm::Group tensor_, context_;  ///< ranks that hold the other parts of the sequence
  comm::Group readers_;           ///< ranks whose tokens move the bias
  double bias_rate_;
  at::Tensor taken_;  ///< tokens of this step that chose each expert, on this rank
};

}  // namespace colonnade::layers
