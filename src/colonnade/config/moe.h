// The settings of a mixture of experts: which layers have one, how tokens find experts, what keeps them busy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace colonnade::config {

enum class RouterScore { kSoftmax, kSigmoid, kSqrtSoftplus };
enum class TokenDispatcher { kAllGather, kAllToAll };
enum class TokenDropPolicy { kProbs, kPosition };

/// Without experts (num_experts 0) nothing else of it counts.
struct Moe {
  std::int64_t num_experts = 0;      ///< --num-experts; 0: every MLP is dense
  std::string layer_freq = "1";      ///< --moe-layer-freq; see config::moe_layers
  std::int64_t ffn_hidden_size = 0;  ///< --moe-ffn-hidden-size, of one expert; 0: as --ffn-hidden-size
  std::int64_t shared_expert_intermediate_size = 0;  ///< of all shared experts together; 0: none
  bool shared_expert_gate = false;                   ///< shared experts times sigmoid(x . gate)
  bool shared_expert_overlap = false;                ///< computed while rows are on their way

  std::int64_t router_topk = 2;                               ///< experts of a token
  RouterScore router_score_function = RouterScore::kSoftmax;  ///< of the logits
  bool router_pre_softmax = false;                   ///< softmax over all experts, not over the chosen ones
  std::int64_t router_num_groups = 0;                ///< experts compete in groups; 0: all in one
  std::int64_t router_group_topk = 0;                ///< groups that a token may choose from; 0: all
  std::int64_t router_group_best = 0;                ///< best scores that value a group; 0: topk / group_topk
  std::optional<double> router_topk_scaling_factor;  ///< on the weights; unset: 1
  bool router_enable_expert_bias = false;            ///< a bias that only selects keeps experts busy
  double router_bias_update_rate = 0.001;            ///< step of that bias after each training step
  bool router_force_load_balancing = false;  ///< random logits in place of the router's; benchmarks only
  double input_jitter_eps = 0;               ///< the router's input times U(1 - eps, 1 + eps); 0: none

  std::vector<std::string> router_load_balancing_type = {"aux_loss"};  ///< of kBalancing
  std::vector<double> aux_loss_coeff = {0.0};                          ///< one for each of them
  double z_loss_coeff = 0;  ///< of the mean square of the logits' log-sum-exp; 0: none

  TokenDispatcher token_dispatcher_type = TokenDispatcher::kAllGather;
  std::optional<double> expert_capacity_factor;  ///< tokens over so many times an even share are dropped
  bool pad_expert_input_to_capacity = false;     ///< every expert computes as many rows
  TokenDropPolicy token_drop_policy = TokenDropPolicy::kProbs;

  /// Whether Sinkhorn's algorithm assigns experts, which also decides what their weights are.
  [[nodiscard]] bool sinkhorn() const {
    return router_load_balancing_type.size() == 1 && router_load_balancing_type.front() == "sinkhorn";
  }

  /// Not of a run, which routes as its data says: what a plan and its dry runs assume. Rows that the fullest
  /// rank of an expert group receives over their mean. `plan --expert-imbalance`
  double assumed_imbalance = 1;

  friend bool operator==(const Moe&, const Moe&) = default;
};

inline constexpr const char* kBalancing[] = {"aux_loss", "seq_aux_loss", "global_aux_loss", "sinkhorn",
                                             "none"};

}  // namespace colonnade::config
