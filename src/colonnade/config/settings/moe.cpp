// Settings of a mixture of experts.
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
  if (values.empty()) return "must be one number for each balancing loss";
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
    if (std::ranges::find(kBalancing, word) == std::end(kBalancing))
      return fmt::format("must be of {}", fmt::join(kBalancing, ", "));
  if (words.empty()) return "must be at least one kind; `none` for no loss";
  run.model.moe.router_load_balancing_type = words;
  return "";
}

std::optional<Words> get_balancing(const Run& run) { return run.model.moe.router_load_balancing_type; }

/// As in Megatron: below 0 nothing is dropped.
std::string set_capacity_factor(Run& run, const Words& words) {
  std::string broken = set_field<kModel, kMoe, &Moe::expert_capacity_factor>(run, words);
  auto& factor = run.model.moe.expert_capacity_factor;
  if (factor && *factor < 0) factor.reset();
  return broken;
}

/// Megatron's flex dispatcher exchanges tokens as the all-to-all one does, by other libraries.
std::string set_dispatcher(Run& run, const Words& words) {
  if (words == Words{"flex"}) return run.model.moe.token_dispatcher_type = TokenDispatcher::kAllToAll, "";
  return read(run.model.moe.token_dispatcher_type, words);
}

void experts(Table& t) {
  t.add<kModel, kMoe, &Moe::num_experts>("--num-experts",
                                         "experts in each layer of --moe-layer-freq; 0: no experts")
      .range(0, 1'000'000);
  t.add<kModel, kMoe, &Moe::layer_freq>("--moe-layer-freq",
                                        "which layers have experts: N for each N-th beginning with the "
                                        "first, or a list like ([0]*3+[1]*58)");
  t.add<kModel, kMoe, &Moe::ffn_hidden_size>("--moe-ffn-hidden-size",
                                             "width of one expert; 0: as --ffn-hidden-size")
      .range(0, 1'000'000'000);
  t.add<kModel, kMoe, &Moe::shared_expert_intermediate_size>(
       "--moe-shared-expert-intermediate-size",
       "width of the shared experts together, which every token passes; 0: none")
      .range(0, 1'000'000'000);
  t.add<kModel, kMoe, &Moe::shared_expert_gate>("--moe-shared-expert-gate",
                                                "the shared experts' output is weighted by a sigmoid of the "
                                                "token");
  t.add<kModel, kMoe, &Moe::shared_expert_overlap>(
      "--moe-shared-expert-overlap",
      "shared experts are computed while rows are on the way to their experts");
}

void router(Table& t) {
  t.add<kModel, kMoe, &Moe::router_topk>("--moe-router-topk", "experts of a token").range(1, 1'000'000);
  t.add<kModel, kMoe, &Moe::router_score_function>("--moe-router-score-function", "what a logit becomes");
  t.add<kModel, kMoe, &Moe::router_pre_softmax>(
      "--moe-router-pre-softmax", "weights are the softmax over all experts, not over the chosen ones");
  t.add<kModel, kMoe, &Moe::router_num_groups>("--moe-router-num-groups",
                                               "experts compete in so many groups; 0: all in one")
      .range(0, 1'000'000);
  t.add<kModel, kMoe, &Moe::router_group_topk>("--moe-router-group-topk",
                                               "groups that a token chooses from; 0: all")
      .range(0, 1'000'000);
  t.add<kModel, kMoe, &Moe::router_group_best>(
       "--moe-router-group-best",
       "a group is worth the sum of so many of its best scores; 0: topk / group topk, rounded down")
      .range(0, 1'000'000)
      .own();
  t.add<kModel, kMoe, &Moe::router_topk_scaling_factor>("--moe-router-topk-scaling-factor",
                                                        "the weights are multiplied by this; unset: 1")
      .at_least(0);
  t.add<kModel, kMoe, &Moe::router_enable_expert_bias>(
      "--moe-router-enable-expert-bias",
      "a bias that only selects moves towards experts with few tokens after each step");
  t.add<kModel, kMoe, &Moe::router_bias_update_rate>("--moe-router-bias-update-rate", "step of that bias")
      .at_least(0);
  t.add<kModel, kMoe, &Moe::input_jitter_eps>("--moe-input-jitter-eps",
                                              "the router's input is multiplied by random numbers within "
                                              "this of 1; 0: none")
      .range(0, 1);
  t.add<kModel, kMoe, &Moe::router_force_load_balancing>(
      "--moe-router-force-load-balancing",
      "random logits replace the router's, so experts get about equal loads; for benchmarks: losses mean nothing");
  t.special("--moe-router-load-balancing-type",
            "load-balancing losses, each with a coefficient in --moe-aux-loss-coeff: aux_loss per "
            "micro-batch, seq_aux_loss per sequence, global_aux_loss per step; none; or sinkhorn: no loss, "
            "experts are assigned evenly")
      .how(Kind::kList, &set_balancing, &get_balancing)
      .missing({"quantile_balancing"}, "quantile balancing of experts");
  t.special("--moe-aux-loss-coeff", "weight of each balancing loss; 0: none is made")
      .how(Kind::kList, &set_coefficients, &get_coefficients);
  t.add<kModel, kMoe, &Moe::z_loss_coeff>("--moe-z-loss-coeff",
                                          "weight of the mean squared log-sum-exp of the router's logits")
      .at_least(0);
}

void tokens(Table& t) {
  t.add<kModel, kMoe, &Moe::token_dispatcher_type>("--moe-token-dispatcher-type",
                                                   "how tokens reach the ranks of their experts; flex is "
                                                   "alltoall, whatever its backend")
      .how(Kind::kChoice, set_dispatcher, get_field<kModel, kMoe, &Moe::token_dispatcher_type>)
      .choices({"allgather", "alltoall", "flex"});
  t.add<kModel, kMoe, &Moe::expert_capacity_factor>(
       "--moe-expert-capacity-factor",
       "an expert takes at most so many times an even share of the tokens that a rank has of a micro-batch, "
       "others are dropped; unset, or below 0: all of them")
      .how(Kind::kNumber, set_capacity_factor, get_field<kModel, kMoe, &Moe::expert_capacity_factor>);
  t.add<kModel, kMoe, &Moe::pad_expert_input_to_capacity>(
      "--moe-pad-expert-input-to-capacity",
      "every expert computes as many rows as it may, zeros "
      "where it has fewer");
  t.add<kModel, kMoe, &Moe::token_drop_policy>("--moe-token-drop-policy",
                                               "who is dropped over the capacity: smallest weights, or last "
                                               "positions");
}

}  // namespace

void add_moe(Table& t) {
  t.group("mixture of experts");
  experts(t);
  router(t);
  tokens(t);
}

}  // namespace colonnade::config
