// Mixture-of-experts settings: MoE layers, routing, load balancing, token dispatch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace colonnade::config {

enum class RouterScore { kSoftmax, kSigmoid, kSqrtSoftplus };
enum class TokenDispatcher { kAllGather, kAllToAll };
enum class TokenDropPolicy { kProbs, kPosition };

/// Ignored if num_experts is 0.
struct Moe {
  std::int64_t num_experts = 0;      ///< --num-experts; 0: every MLP is dense
  std::string layer_freq = "1";      ///< --moe-layer-freq; see config::expand_layer_freq
  std::int64_t ffn_hidden_size = 0;  ///< --moe-ffn-hidden-size, per expert; 0: --ffn-hidden-size
  std::int64_t routed_size = 0;      ///< width of the rows of routed experts, projected; 0: hidden size
  std::int64_t shared_expert_intermediate_size = 0;  ///< total FFN size of the shared experts; 0: none
  bool shared_expert_gate = false;                   ///< shared expert output times sigmoid(x . gate)
  bool shared_expert_overlap = false;                ///< computed during the token dispatch

  std::int64_t router_topk = 2;                               ///< experts per token
  RouterScore router_score_function = RouterScore::kSoftmax;  ///< from logits to scores
  bool router_pre_softmax = false;                            ///< softmax over all experts before the top-k
  std::int64_t router_num_groups = 0;  ///< expert groups of group-limited routing; 0: one
  std::int64_t router_group_topk = 0;  ///< groups selected per token; 0: all
  std::int64_t router_group_best = 0;  ///< top scores summed into a group score; 0: topk / group_topk
  std::optional<double> router_topk_scaling_factor;  ///< multiplier of the routing weights; unset: 1
  bool router_enable_expert_bias = false;            ///< aux-loss-free balancing by a selection bias
  double router_bias_update_rate = 0.001;            ///< update of that bias per training step
  bool router_force_load_balancing = false;          ///< random logits replace the router's; benchmarks only
  double input_jitter_eps = 0;                       ///< router input times U(1 - eps, 1 + eps); 0: none

  std::vector<std::string> router_load_balancing_type = {"aux_loss"};  ///< of kLoadBalancingTypes
  std::vector<double> aux_loss_coeff = {0.0};                          ///< one per balancing loss
  double z_loss_coeff = 0;     ///< coefficient of the mean squared log-sum-exp of the logits; 0: none
  bool use_upcycling = false;  ///< experts start as copies of the MLPs of a dense checkpoint
  std::int64_t upcycling_granularity = 1;  ///< dense FFN hidden size / --ffn-hidden-size
  bool per_layer_logging = false;          ///< metrics include the router losses of each MoE layer

  TokenDispatcher token_dispatcher_type = TokenDispatcher::kAllGather;
  std::optional<double> expert_capacity_factor;  ///< tokens beyond this multiple of an even share are dropped
  bool pad_expert_input_to_capacity = false;     ///< pads every expert to its capacity
  TokenDropPolicy token_drop_policy = TokenDropPolicy::kProbs;

  /// Whether Sinkhorn's algorithm assigns experts, which also determines the routing weights.
  [[nodiscard]] bool uses_sinkhorn() const {
    return router_load_balancing_type.size() == 1 && router_load_balancing_type.front() == "sinkhorn";
  }

  /// Whether the losses or the routing of a token depend on other tokens of its micro-batch, or on its
  /// position.
  [[nodiscard]] bool routes_tokens_together() const {
    for (const double coefficient : aux_loss_coeff)
      if (coefficient != 0) return true;
    return uses_sinkhorn() || expert_capacity_factor || input_jitter_eps > 0 || router_force_load_balancing;
  }

  /// Load imbalance assumed by `plan` and its dry runs (`plan --expert-imbalance`): maximum over mean of the
  /// tokens received by the ranks of an expert-parallel group. Real runs route by their data.
  double assumed_imbalance = 1;

  friend bool operator==(const Moe&, const Moe&) = default;
};

inline constexpr const char* kLoadBalancingTypes[] = {"aux_loss", "seq_aux_loss", "global_aux_loss",
                                                      "sinkhorn", "none"};

}  // namespace colonnade::config
