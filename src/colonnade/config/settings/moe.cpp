// Mixture-of-experts settings.
#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

constexpr auto kModel = &Run::model;
constexpr auto kMoe = &Model::moe;

std::string set_coefficients(Run& run, const Words& words) {
  std::vector<double> values;
  for (const std::string& word : words)
    if (!read_number(word, values.emplace_back()) || values.back() < 0)
      return "must be numbers of at least 0";
  if (values.empty()) return "must be one number per load-balancing loss";
  run.model.moe.aux_loss_coeff = std::move(values);
  return "";
}

std::optional<Words> get_coefficients(const Run& run) {
  Words words;
  for (const double value : run.model.moe.aux_loss_coeff) words.push_back(fmt::format("{}", value));
  return words;
}

std::string set_balancing(Run& run, const Words& words) {
  for (const std::string& word : words)
    if (std::ranges::find(kLoadBalancingTypes, word) == std::end(kLoadBalancingTypes))
      return fmt::format("must be among {}", fmt::join(kLoadBalancingTypes, ", "));
  if (words.empty()) return "must be at least one type; `none` for no loss";
  run.model.moe.router_load_balancing_type = words;
  return "";
}

std::optional<Words> get_balancing(const Run& run) { return run.model.moe.router_load_balancing_type; }

/// As in Megatron, a negative factor disables dropping.
std::string set_capacity_factor(Run& run, const Words& words) {
  std::string violated = set_field<kModel, kMoe, &Moe::expert_capacity_factor>(run, words);
  auto& factor = run.model.moe.expert_capacity_factor;
  if (factor && *factor < 0) factor.reset();
  return violated;
}

/// Megatron's flex dispatcher is an all-to-all with other communication libraries.
std::string set_dispatcher(Run& run, const Words& words) {
  if (words == Words{"flex"}) return run.model.moe.token_dispatcher_type = TokenDispatcher::kAllToAll, "";
  return read(run.model.moe.token_dispatcher_type, words);
}

void experts(Table& t) {
  t.add<kModel, kMoe, &Moe::num_experts>("--num-experts", "experts per MoE layer; 0: dense model")
      .range(0, 1'000'000);
  t.add<kModel, kMoe, &Moe::layer_freq>(
      "--moe-layer-freq",
      "MoE layers: N for every N-th layer, starting with the first, or a list like "
      "([0]*3+[1]*58)");
  t.add<kModel, kMoe, &Moe::ffn_hidden_size>("--moe-ffn-hidden-size",
                                             "FFN hidden size of an expert; 0: --ffn-hidden-size")
      .range(0, 1'000'000'000);
  t.add<kModel, kMoe, &Moe::shared_expert_intermediate_size>(
       "--moe-shared-expert-intermediate-size",
       "total FFN hidden size of the shared experts, which process every token; 0: none")
      .range(0, 1'000'000'000);
  t.add<kModel, kMoe, &Moe::shared_expert_gate>(
      "--moe-shared-expert-gate", "scale the shared experts' output by a sigmoid gate of the token");
  t.add<kModel, kMoe, &Moe::shared_expert_overlap>("--moe-shared-expert-overlap",
                                                   "overlap shared experts with the token dispatch");
}

void router(Table& t) {
  t.add<kModel, kMoe, &Moe::router_topk>("--moe-router-topk", "experts per token").range(1, 1'000'000);
  t.add<kModel, kMoe, &Moe::router_score_function>("--moe-router-score-function", "router score function");
  t.add<kModel, kMoe, &Moe::router_pre_softmax>("--moe-router-pre-softmax",
                                                "apply the softmax before the top-k, over all experts");
  t.add<kModel, kMoe, &Moe::router_num_groups>("--moe-router-num-groups",
                                               "expert groups of group-limited routing; 0: one group")
      .range(0, 1'000'000);
  t.add<kModel, kMoe, &Moe::router_group_topk>("--moe-router-group-topk", "groups selected per token; 0: all")
      .range(0, 1'000'000);
  t.add<kModel, kMoe, &Moe::router_group_best>(
       "--moe-router-group-best",
       "top scores summed into the score of a group; 0: topk / group topk, rounded down")
      .range(0, 1'000'000)
      .colonnade_only();
  t.add<kModel, kMoe, &Moe::router_topk_scaling_factor>("--moe-router-topk-scaling-factor",
                                                        "scaling factor of the routing weights; unset: 1")
      .at_least(0);
  t.add<kModel, kMoe, &Moe::router_enable_expert_bias>(
      "--moe-router-enable-expert-bias",
      "aux-loss-free load balancing: a selection-only bias, updated after each step towards "
      "underloaded experts");
  t.add<kModel, kMoe, &Moe::router_bias_update_rate>("--moe-router-bias-update-rate",
                                                     "update rate of the expert bias")
      .at_least(0)
      .training_only();
  t.add<kModel, kMoe, &Moe::input_jitter_eps>(
       "--moe-input-jitter-eps",
       "multiply the router input by uniform noise within [1 - eps, 1 + eps]; 0: none")
      .range(0, 1)
      .training_only();
  t.add<kModel, kMoe, &Moe::router_force_load_balancing>(
       "--moe-router-force-load-balancing",
       "replace router logits by random ones for an even expert load; benchmarks only, losses "
       "are meaningless")
      .training_only();
  t.special("--moe-router-load-balancing-type",
            "load balancing: aux_loss (per micro-batch), seq_aux_loss (per sequence), "
            "global_aux_loss (per step), each weighted by --moe-aux-loss-coeff; sinkhorn "
            "(assignment, no loss); none")
      .accessors(Kind::kList, &set_balancing, &get_balancing)
      .unsupported({"quantile_balancing"}, "quantile balancing of experts");
  t.special("--moe-aux-loss-coeff", "coefficient of each load-balancing loss; 0: no loss")
      .accessors(Kind::kList, &set_coefficients, &get_coefficients)
      .training_only();
  t.add<kModel, kMoe, &Moe::z_loss_coeff>(
       "--moe-z-loss-coeff", "coefficient of the router z-loss: mean squared log-sum-exp of the logits")
      .at_least(0)
      .training_only();
}

void tokens(Table& t) {
  t.add<kModel, kMoe, &Moe::token_dispatcher_type>(
       "--moe-token-dispatcher-type",
       "collective of the token dispatch; flex is treated as alltoall with any backend")
      .accessors(Kind::kChoice, set_dispatcher, get_field<kModel, kMoe, &Moe::token_dispatcher_type>)
      .choices({"allgather", "alltoall", "flex"});
  t.add<kModel, kMoe, &Moe::expert_capacity_factor>(
       "--moe-expert-capacity-factor",
       "expert capacity as a multiple of the even share of a rank's micro-batch; excess tokens "
       "are dropped; unset or negative: no dropping")
      .accessors(Kind::kNumber, set_capacity_factor, get_field<kModel, kMoe, &Moe::expert_capacity_factor>);
  t.add<kModel, kMoe, &Moe::pad_expert_input_to_capacity>(
      "--moe-pad-expert-input-to-capacity", "pad the input of every expert to its capacity with zeros");
  t.add<kModel, kMoe, &Moe::token_drop_policy>(
      "--moe-token-drop-policy",
      "tokens dropped above the capacity: lowest routing weight (probs) or last position "
      "(position)");
}

}  // namespace

void add_moe(Table& t) {
  t.model_group("mixture of experts");
  experts(t);
  router(t);
  tokens(t);
}

}  // namespace colonnade::config
