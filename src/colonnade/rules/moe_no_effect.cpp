// MoE settings without effect in a run.
#include <algorithm>

#include "colonnade/layout/layer_kind.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;

bool is_dense(const Run& r) { return r.model.moe.num_experts == 0; }

/// Whether the expert capacity never drops a token.
bool has_ample_capacity(const Run& r) {
  const config::Moe& moe = r.model.moe;
  return !is_dense(r) && moe.expert_capacity_factor && !moe.pad_expert_input_to_capacity &&
         *moe.expert_capacity_factor * static_cast<double>(moe.router_topk) >=
             static_cast<double>(moe.num_experts);
}

/// Whether the router has a load-balancing loss or a z-loss.
bool has_router_loss(const config::Moe& moe) {
  const auto balances = [](double coefficient) { return coefficient != 0; };
  return moe.z_loss_coeff != 0 ||
         (!moe.uses_sinkhorn() && moe.router_load_balancing_type != config::Words{"none"} &&
          std::ranges::any_of(moe.aux_loss_coeff, balances));
}

constexpr NoEffectCase kRouting[] = {
    {{"ffn_hidden_size"},
     "if every layer is an MoE layer, whose size is --moe-ffn-hidden-size",
     [](const Run& r) {
       return r.model.moe.num_experts > 0 && r.given.contains("moe_ffn_hidden_size") &&
              !r.model.moe.use_upcycling &&
              std::ranges::count(layout::layer_kinds(r.model), false, &layout::LayerKind::is_moe) == 0;
     }},
    {{"expert_tensor_parallel_size", "moe_layer_freq", "moe_ffn_hidden_size", "moe_token_dispatcher_type",
      "moe_shared_expert_intermediate_size", "moe_shared_expert_gate", "moe_shared_expert_overlap",
      "moe_router_topk"},
     "without --num-experts",
     is_dense},
    {{"moe_router_score_function", "moe_router_pre_softmax", "moe_router_topk_scaling_factor",
      "moe_router_num_groups", "moe_router_group_topk", "moe_router_group_best",
      "moe_router_enable_expert_bias", "moe_router_bias_update_rate"},
     "without --num-experts",
     is_dense},
    {{"moe_input_jitter_eps", "moe_router_force_load_balancing", "moe_router_load_balancing_type",
      "moe_aux_loss_coeff", "moe_z_loss_coeff", "moe_expert_capacity_factor",
      "moe_pad_expert_input_to_capacity", "moe_token_drop_policy"},
     "without --num-experts",
     is_dense},
    {{"moe_upcycling_granularity"},
     "without --moe-use-upcycling",
     [](const Run& r) { return !r.model.moe.use_upcycling; }},
    {{"moe_per_layer_logging"}, "without --num-experts", is_dense},
    {{"moe_per_layer_logging"},
     "without a router loss (--moe-aux-loss-coeff, --moe-z-loss-coeff)",
     [](const Run& r) { return !is_dense(r) && !has_router_loss(r.model.moe); }},
    {{"moe_shared_expert_gate", "moe_shared_expert_overlap"},
     "without --moe-shared-expert-intermediate-size",
     [](const Run& r) { return !is_dense(r) && r.model.moe.shared_expert_intermediate_size == 0; }},
    {{"moe_router_score_function", "moe_router_pre_softmax", "moe_router_topk_scaling_factor"},
     "with --moe-router-load-balancing-type sinkhorn",
     [](const Run& r) { return !is_dense(r) && r.model.moe.uses_sinkhorn(); }},
    {{"moe_router_num_groups", "moe_router_group_topk", "moe_router_group_best"},
     "with --moe-router-load-balancing-type sinkhorn",
     [](const Run& r) { return !is_dense(r) && r.model.moe.uses_sinkhorn(); }},
    {{"moe_router_pre_softmax"},
     "with a --moe-router-score-function other than softmax",
     [](const Run& r) {
       const config::Moe& moe = r.model.moe;
       return !is_dense(r) && !moe.uses_sinkhorn() &&
              moe.router_score_function != config::RouterScore::kSoftmax;
     }},
    {{"moe_router_num_groups"},
     "without --moe-router-group-topk",
     [](const Run& r) {
       return !is_dense(r) && !r.model.moe.uses_sinkhorn() && r.model.moe.router_group_topk == 0;
     }},
    {{"moe_router_bias_update_rate"},
     "without --moe-router-enable-expert-bias",
     [](const Run& r) { return !is_dense(r) && !r.model.moe.router_enable_expert_bias; }},
    {{"moe_router_bias_update_rate"},
     "with --moe-pad-expert-input-to-capacity, which gives all experts the same load",
     [](const Run& r) {
       return !is_dense(r) && r.model.moe.router_enable_expert_bias &&
              r.model.moe.pad_expert_input_to_capacity;
     }},
    {{"moe_router_enable_expert_bias"},
     "with --moe-pad-expert-input-to-capacity, which gives all experts the same load",
     [](const Run& r) { return !is_dense(r) && r.model.moe.pad_expert_input_to_capacity; }},
    {{"moe_aux_loss_coeff"},
     "with --moe-router-load-balancing-type none",
     [](const Run& r) {
       return !is_dense(r) && r.model.moe.router_load_balancing_type == config::Words{"none"};
     }},
    {{"moe_router_load_balancing_type"},
     "with --moe-aux-loss-coeff 0",
     [](const Run& r) {
       const config::Moe& moe = r.model.moe;
       return !is_dense(r) && !moe.uses_sinkhorn() &&
              moe.router_load_balancing_type != config::Words{"none"} &&
              std::ranges::all_of(moe.aux_loss_coeff, [](double c) { return c == 0; });
     }},
    {{"moe_token_drop_policy"},
     "without --moe-expert-capacity-factor",
     [](const Run& r) { return !is_dense(r) && !r.model.moe.expert_capacity_factor; }},
    {{"moe_expert_capacity_factor", "moe_token_drop_policy"},
     "if every expert has capacity for every token",
     has_ample_capacity},
};

}  // namespace

std::span<const NoEffectCase> routing_no_effect_cases() { return kRouting; }

std::string routing_note(const Run& run) {
  if (is_dense(run) || !run.model.moe.router_force_load_balancing) return "";
  return "--moe-router-force-load-balancing routes tokens to random experts, for benchmarks; losses are "
         "meaningless";
}

}  // namespace colonnade::rules
