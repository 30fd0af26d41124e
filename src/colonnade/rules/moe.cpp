// Rules of a mixture of experts: sizes and ranks, the router, what keeps experts busy, capacity.
#include <algorithm>
#include <numeric>
#include <set>

#include "colonnade/config/layer_pattern.h"
#include "colonnade/config/parse.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;
using Score = config::RouterScore;

/// As kernels::kMaxExpertGroups: the router keeps one number for each group at hand.
constexpr std::int64_t kMostGroups = 64;

bool has_experts(const Run& r) { return r.model.moe.num_experts > 0; }

Broken without_experts(const Run& r) {
  const auto& p = r.parallel;
  if (has_experts(r) || p.expert_model_parallel_size <= 1) return std::nullopt;
  return Finding{"--expert-model-parallel-size",
                 "above 1 requires --num-experts",
                 text(std::int64_t{p.expert_model_parallel_size}),
                 {{"expert_model_parallel_size", "1"}},
                 "leave it out, or add --num-experts"};
}

/// As Megatron: a width of experts in a model without any is a mistake, unless only some layers would have
/// them (scripts of mixed models); the other settings of experts are notes (rules/effect.cpp).
Broken width_without_experts(const Run& r) {
  const config::Setting& width = config::setting("moe_ffn_hidden_size");
  if (has_experts(r) || r.model.num_layers < 1 || !gives_idle(r, width, "num_experts")) return std::nullopt;
  const auto layers = config::layers_of_kind(r.model.moe.layer_freq, r.model.num_layers);
  if (layers && std::ranges::find(*layers, false) != layers->end()) return std::nullopt;
  return Finding{width.flag,
                 "requires --num-experts",
                 config::text_of(r, width),
                 {{width.key, width.default_text()}},
                 "leave it out, or add --num-experts"};
}

Broken experts_over_ranks(const Run& r) {
  const std::int64_t experts = r.model.moe.num_experts, ep = r.parallel.expert_model_parallel_size;
  if (experts < 1 || ep < 1 || experts % ep == 0) return std::nullopt;
  return Finding{"--expert-model-parallel-size",
                 "must divide --num-experts",
                 fmt::format("{} and {} experts", ep, experts),
                 {{"expert_model_parallel_size", text(std::gcd(experts, ep))}},
                 ""};
}

Broken expert_world(const Run& r) {
  const auto& p = r.parallel;
  const std::int64_t world = p.world_size, pp = p.pipeline_model_parallel_size, etp = p.expert_tensor();
  const std::int64_t ep = p.expert_model_parallel_size;
  const std::int64_t dense = std::int64_t{p.tensor_model_parallel_size} * p.context_parallel_size;
  if (without_experts(r) || std::min({world, pp, etp, ep, dense}) < 1) return std::nullopt;
  if (etp * ep == dense || world % (etp * ep * pp) == 0) return std::nullopt;  // as `world` says, or right
  const std::string got = fmt::format("{} x {} x {} = {} for {} ranks", etp, ep, pp, etp * ep * pp, world);
  if (!has_experts(r))
    return Finding{"--expert-tensor-parallel-size",
                   "expert tensor x expert x pipeline size must divide the ranks",
                   got,
                   {{"expert_tensor_parallel_size", "0"}},
                   "leave it out: the model has no experts"};
  const std::int64_t whole = std::gcd(ep, r.model.moe.num_experts);
  std::int64_t fits = whole;
  while (fits > 1 && (whole % fits != 0 || world % (etp * fits * pp) != 0)) --fits;
  std::vector<Edit> edits{{"expert_model_parallel_size", text(fits)}};
  if (world % (etp * fits * pp) != 0) edits.push_back({"expert_tensor_parallel_size", "1"});
  return Finding{"--expert-model-parallel-size",
                 "expert tensor x expert x pipeline size must divide the ranks", got, std::move(edits), ""};
}

Broken rank_order(const Run& r) {
  const auto& p = r.parallel;
  const std::int64_t dense = std::int64_t{p.tensor_model_parallel_size} * p.context_parallel_size;
  const std::int64_t expert = std::int64_t{p.expert_tensor()} * p.expert_model_parallel_size;
  if (!p.use_tp_pp_dp_mapping || p.pipeline_model_parallel_size <= 1 || dense == expert) return std::nullopt;
  return Finding{"--use-tp-pp-dp-mapping",
                 "tensor x context size must equal expert tensor x expert size",
                 fmt::format("{} x {} and {} x {}", p.tensor_model_parallel_size, p.context_parallel_size,
                             p.expert_tensor(), p.expert_model_parallel_size),
                 {{"use_tp_pp_dp_mapping", "false"}},
                 "leave it out"};
}

Broken layer_freq(const Run& r) {
  const auto& moe = r.model.moe;
  if (!has_experts(r) || r.model.num_layers < 1) return std::nullopt;
  const auto layers = config::layers_of_kind(moe.layer_freq, r.model.num_layers);
  if (layers && std::ranges::find(*layers, true) != layers->end()) return std::nullopt;
  return Finding{"--moe-layer-freq",
                 layers ? "at least one layer must have experts"
                        : "must be a number of at least 1, or a list with a 0 or 1 for each layer",
                 fmt::format("\"{}\" for {} layers", moe.layer_freq, r.model.num_layers),
                 {{"moe_layer_freq", "1"}},
                 "write --moe-layer-freq 1 for experts in all layers, or e.g. ([0]*3+[1]*58) for 61 layers"};
}

Broken expert_ffn(const Run& r) {
  const std::int64_t ffn = r.model.moe.ffn_hidden_size, etp = r.parallel.expert_tensor();
  if (!has_experts(r) || ffn < 1 || etp < 1 || ffn % etp == 0) return std::nullopt;
  return Finding{"--moe-ffn-hidden-size",
                 "must be a multiple of --expert-tensor-parallel-size",
                 fmt::format("{} and {}", ffn, etp),
                 {{"moe_ffn_hidden_size", text(round_up(ffn, etp))}},
                 ""};
}

Broken shared_expert(const Run& r) {
  const std::int64_t size = r.model.moe.shared_expert_intermediate_size;
  const std::int64_t tp = r.parallel.tensor_model_parallel_size;
  if (!has_experts(r) || size < 1 || tp < 1 || size % tp == 0) return std::nullopt;
  return Finding{"--moe-shared-expert-intermediate-size",
                 "must be a multiple of --tensor-model-parallel-size",
                 fmt::format("{} and {}", size, tp),
                 {{"moe_shared_expert_intermediate_size", text(round_up(size, tp))}},
                 ""};
}

Broken shared_overlap(const Run& r) {
  const auto& moe = r.model.moe;
  if (!has_experts(r) || !moe.shared_expert_overlap || moe.shared_expert_intermediate_size == 0 ||
      moe.token_dispatcher_type == config::TokenDispatcher::kAllToAll)
    return std::nullopt;
  return Finding{"--moe-shared-expert-overlap",
                 "needs --moe-token-dispatcher-type alltoall",
                 "allgather",
                 {{"moe_shared_expert_overlap", "false"}},
                 "leave it out, or add --moe-token-dispatcher-type alltoall"};
}

Broken shared_bias_linear(const Run& r) {
  if (!has_experts(r) || !r.model.add_bias_linear || r.model.moe.shared_expert_intermediate_size == 0)
    return std::nullopt;
  return Finding{"--moe-shared-expert-intermediate-size",
                 "needs --disable-bias-linear",
                 "biases of the linear layers",
                 {{"add_bias_linear", "false"}},
                 "add --disable-bias-linear"};
}

Broken experts_sequence(const Run& r) {
  const auto& p = r.parallel;
  if (!has_experts(r) || p.tensor_model_parallel_size <= 1 || p.sequence_parallel) return std::nullopt;
  return Finding{"--num-experts",
                 "needs --sequence-parallel when --tensor-model-parallel-size is above 1",
                 fmt::format("tensor size {} without it", p.tensor_model_parallel_size),
                 {{"sequence_parallel", "true"}},
                 ""};
}

// The router.

/// Experts that a token can choose from.
std::int64_t choice(const config::Moe& moe) {
  const bool groups = moe.router_num_groups > 0 && moe.router_group_topk > 0;
  return groups ? moe.num_experts / moe.router_num_groups * moe.router_group_topk : moe.num_experts;
}

/// The nearest groups below those asked for that are sound together: equal ones, of which so many count that
/// each has one of the chosen experts and enough experts are there.
std::vector<Edit> sound_groups(const config::Moe& moe) {
  for (std::int64_t groups = std::min(moe.router_num_groups, kMostGroups); groups > 1; --groups) {
    if (moe.num_experts % groups != 0) continue;
    for (std::int64_t chosen = std::min(moe.router_group_topk, groups); chosen > 0; --chosen) {
      const bool valued = moe.router_group_best > 0 || moe.router_topk >= chosen;
      if (valued && moe.num_experts / groups * chosen >= moe.router_topk)
        return {{"moe_router_num_groups", text(groups)}, {"moe_router_group_topk", text(chosen)}};
    }
  }
  return {{"moe_router_num_groups", "0"}, {"moe_router_group_topk", "0"}};
}

Broken groups(const Run& r) {
  const auto& moe = r.model.moe;
  if (!has_experts(r) || moe.router_group_topk <= moe.router_num_groups) return std::nullopt;
  const std::string got = fmt::format("{} of {} groups", moe.router_group_topk, moe.router_num_groups);
  if (moe.router_num_groups == 0)
    return Finding{"--moe-router-group-topk",
                   "requires --moe-router-num-groups",
                   got,
                   {{"moe_router_group_topk", "0"}},
                   "leave it out, or add --moe-router-num-groups"};
  return Finding{"--moe-router-group-topk", "must be at most --moe-router-num-groups", got, sound_groups(moe),
                 ""};
}

Broken groups_experts(const Run& r) {
  const auto& moe = r.model.moe;
  const std::int64_t groups = moe.router_num_groups;
  if (!has_experts(r) || groups == 0 || moe.router_group_topk == 0 ||
      (moe.num_experts % groups == 0 && groups <= kMostGroups))
    return std::nullopt;
  return Finding{"--moe-router-num-groups",
                 fmt::format("must divide --num-experts and be at most {}", kMostGroups),
                 fmt::format("{} and {} experts", groups, moe.num_experts), sound_groups(moe), ""};
}

Broken groups_topk(const Run& r) {
  const auto& moe = r.model.moe;
  const std::int64_t chosen = moe.router_group_topk;
  if (!has_experts(r) || moe.router_num_groups == 0 || moe.router_group_best > 0 || moe.router_topk >= chosen)
    return std::nullopt;
  return Finding{"--moe-router-group-topk", "must be at most --moe-router-topk",
                 fmt::format("{} and {}", chosen, moe.router_topk), sound_groups(moe), ""};
}

Broken topk(const Run& r) {
  const auto& moe = r.model.moe;
  if (!has_experts(r) || choice(moe) < 1 || moe.router_topk <= choice(moe)) return std::nullopt;
  if (groups(r) || groups_experts(r) || groups_topk(r))
    return std::nullopt;  // they say how many there should be
  std::vector<Edit> edits{{"moe_router_topk", text(choice(moe))}};
  if (choice(moe) == 1 && moe.router_score_function == Score::kSoftmax && !moe.sinkhorn())
    edits.push_back({"moe_router_pre_softmax", "true"});
  return Finding{"--moe-router-topk", "must be at most the experts that a token chooses from",
                 fmt::format("{} of {}", moe.router_topk, choice(moe)), std::move(edits), ""};
}

Broken topk_one(const Run& r) {
  const auto& moe = r.model.moe;
  if (!has_experts(r) || moe.router_topk != 1 || moe.router_score_function != Score::kSoftmax ||
      moe.router_pre_softmax || moe.sinkhorn())
    return std::nullopt;
  return Finding{"--moe-router-topk",
                 "1 with softmax needs --moe-router-pre-softmax",
                 "softmax over the one chosen expert",
                 {{"moe_router_pre_softmax", "true"}},
                 ""};
}

Broken expert_bias(const Run& r) {
  const auto& moe = r.model.moe;
  if (!has_experts(r) || !moe.router_enable_expert_bias || moe.router_score_function != Score::kSoftmax)
    return std::nullopt;
  return Finding{"--moe-router-enable-expert-bias",
                 "needs --moe-router-score-function sigmoid or sqrtsoftplus",
                 "softmax",
                 {{"moe_router_enable_expert_bias", "false"}},
                 "leave it out, or add --moe-router-score-function sigmoid"};
}

Broken group_best(const Run& r) {
  const auto& moe = r.model.moe;
  const std::int64_t best = moe.router_group_best, groups = moe.router_num_groups;
  if (!has_experts(r) || best == 0) return std::nullopt;
  if (groups > 0 && (moe.num_experts % groups != 0 || best <= moe.num_experts / groups)) return std::nullopt;
  return Finding{"--moe-router-group-best",
                 groups > 0 ? "must be at most the experts of a group" : "does nothing without groups",
                 fmt::format("{} and {} experts in {} groups", best, moe.num_experts, groups),
                 {{"moe_router_group_best", "0"}},
                 ""};
}

// What keeps experts busy.

Broken balancing(const Run& r) {
  const auto& kinds = r.model.moe.router_load_balancing_type;
  const std::set<std::string> different(kinds.begin(), kinds.end());
  if (!has_experts(r)) return std::nullopt;
  if (different.size() == kinds.size() && (kinds.size() == 1 || !different.contains("sinkhorn")))
    return std::nullopt;
  return Finding{"--moe-router-load-balancing-type",
                 "each kind must be named once, and sinkhorn alone",
                 fmt::format("{}", fmt::join(kinds, " ")),
                 {{"moe_router_load_balancing_type", "aux_loss"},
                  {"moe_aux_loss_coeff", text(r.model.moe.aux_loss_coeff.front())}},
                 "name each kind once, with a coefficient each in --moe-aux-loss-coeff"};
}

Broken balancing_weights(const Run& r) {
  const auto& moe = r.model.moe;
  const std::size_t kinds = moe.router_load_balancing_type.size();
  if (!has_experts(r) || moe.aux_loss_coeff.empty() || moe.aux_loss_coeff.size() == kinds)
    return std::nullopt;
  std::vector<double> fitting = moe.aux_loss_coeff;
  fitting.resize(kinds, fitting.back());
  return Finding{"--moe-aux-loss-coeff",
                 "must be a number for each of --moe-router-load-balancing-type",
                 fmt::format("{} for {}", fmt::join(moe.aux_loss_coeff, " "),
                             fmt::join(moe.router_load_balancing_type, " ")),
                 {{"moe_aux_loss_coeff", fmt::format("{}", fmt::join(fitting, " "))}},
                 ""};
}

Broken sinkhorn_loss(const Run& r) {
  const auto& moe = r.model.moe;
  if (!has_experts(r) || !moe.sinkhorn() || moe.aux_loss_coeff.size() != 1 || moe.aux_loss_coeff[0] == 0)
    return std::nullopt;
  return Finding{"--moe-aux-loss-coeff",
                 "must be 0 with --moe-router-load-balancing-type sinkhorn",
                 text(moe.aux_loss_coeff[0]),
                 {{"moe_aux_loss_coeff", "0"}},
                 "leave it out, or name a loss in --moe-router-load-balancing-type"};
}

/// Settings that steer a choice by scores.
Broken sinkhorn_choice(const Run& r) {
  const auto& moe = r.model.moe;
  if (!has_experts(r) || !moe.sinkhorn()) return std::nullopt;
  Finding found{"", "must be unset with --moe-router-load-balancing-type sinkhorn", "", {}, "leave it out"};
  found.refuse(r, moe.router_enable_expert_bias, "moe_router_enable_expert_bias", "false");
  found.refuse(r, moe.expert_capacity_factor.has_value(), "moe_expert_capacity_factor", "unset");
  if (moe.pad_expert_input_to_capacity && moe.expert_capacity_factor)
    found.refuse(r, true, "moe_pad_expert_input_to_capacity", "false");
  return found.edits.empty() ? Broken{} : found;
}

// Capacity.

Broken capacity(const Run& r) {
  const auto& factor = r.model.moe.expert_capacity_factor;
  if (!has_experts(r) || !factor || *factor > 0) return std::nullopt;
  return Finding{"--moe-expert-capacity-factor",
                 "must be above 0",
                 text(*factor),
                 {{"moe_expert_capacity_factor", "unset"}},
                 "leave it out: no token is dropped"};
}

Broken capacity_needed(const Run& r) {
  const auto& moe = r.model.moe;
  if (!has_experts(r) || moe.expert_capacity_factor || !moe.pad_expert_input_to_capacity) return std::nullopt;
  return Finding{"--moe-pad-expert-input-to-capacity",
                 "needs --moe-expert-capacity-factor",
                 "unset",
                 {{"moe_pad_expert_input_to_capacity", "false"}},
                 "leave it out, or add --moe-expert-capacity-factor 1"};
}

constexpr Rule kMoe[] = {
    {"experts-without", false, without_experts, "num_experts=0; expert_model_parallel_size=2",
     "Expert parallel ranks share experts, of which a dense model has none.", "num_experts"},
    {"experts-width", false, width_without_experts, "num_experts=0; moe_ffn_hidden_size=32",
     "The width of experts in a dense model is most often a forgotten --num-experts; Megatron rejects it too.",
     "num_experts moe_layer_freq num_layers"},
    {"experts-ranks", false, experts_over_ranks, "num_experts=6; expert_model_parallel_size=4; world_size=16",
     "Every rank holds as many whole experts.", "num_experts"},
    {"experts-world", false, expert_world, "expert_model_parallel_size=4",
     "Experts are spread over the ranks that the other layers use, in a factoring of their own: ranks = expert "
     "tensor x expert x expert data x pipeline size.",
     "num_experts tensor_model_parallel_size pipeline_model_parallel_size expert_tensor_parallel_size"},
    {"experts-rank-order", false, rank_order, "use_tp_pp_dp_mapping=true; expert_model_parallel_size=2",
     "With data ranks outermost, both factorings have the same pipeline groups only then.",
     "tensor_model_parallel_size context_parallel_size expert_tensor_parallel_size "
     "expert_model_parallel_size pipeline_model_parallel_size"},
    {"experts-layers", false, layer_freq, "moe_layer_freq=[1,0]", "Each layer has experts or has none.",
     "num_layers num_experts"},
    {"experts-ffn", false, expert_ffn, "moe_ffn_hidden_size=101",
     "Expert tensor ranks share the channels of an expert evenly; of a gated one those of gate and of up.",
     "expert_tensor_parallel_size tensor_model_parallel_size ffn_hidden_size hidden_size"},
    {"experts-shared", false, shared_expert, "moe_shared_expert_intermediate_size=33",
     "Shared experts are cut over the tensor ranks, as a dense MLP is.", "tensor_model_parallel_size"},
    {"experts-shared-overlap", false, shared_overlap,
     "moe_shared_expert_intermediate_size=32; moe_shared_expert_overlap=true",
     "Shared experts are computed while rows are on the way to their experts; gathered tokens are sent "
     "before anything is known of rows.",
     "moe_token_dispatcher_type moe_shared_expert_intermediate_size"},
    {"experts-shared-bias", false, shared_bias_linear,
     "add_bias_linear=true; moe_shared_expert_intermediate_size=32",
     "Shared experts have no biases here, while experts and their router have them.", "num_experts"},
    {"experts-sequence", true, experts_sequence, "sequence_parallel=false",
     "Tensor ranks that see the whole sequence would each send the same tokens to the experts, and what those "
     "learn would count as often. Megatron refuses it in the first step.",
     "num_experts tensor_model_parallel_size"},
    {"router-topk", false, topk, "moe_router_topk=9", "A token takes an expert once.",
     "num_experts moe_router_num_groups moe_router_group_topk"},
    {"router-topk-one", false, topk_one, "moe_router_topk=1",
     "The softmax of one number is 1: the router would learn nothing.",
     "moe_router_topk moe_router_score_function moe_router_load_balancing_type"},
    {"router-bias", false, expert_bias, "moe_router_enable_expert_bias=true",
     "The bias is added to scores of each expert by itself; those of a softmax depend on each other.",
     "moe_router_score_function"},
    {"router-groups", false, groups, "moe_router_group_topk=2",
     "A token chooses its experts in the best groups, of which there are --moe-router-num-groups.",
     "moe_router_num_groups moe_router_group_topk"},
    {"router-groups-experts", false, groups_experts,
     "moe_router_num_groups=3; moe_router_group_topk=1; moe_router_topk=2",
     "Groups are of one size; the kernel keeps a number for each of them at hand.", "num_experts"},
    {"router-groups-topk", false, groups_topk,
     "moe_router_num_groups=4; moe_router_group_topk=4; moe_router_topk=2",
     "The score of a group is the sum of its best topk / group-topk scores, rounded down: at least one.",
     "moe_router_topk"},
    {"router-group-best", false, group_best, "moe_router_group_best=2",
     "A group is worth the sum of so many of its scores.", "moe_router_num_groups num_experts"},
    {"balancing-kinds", true, balancing,
     "moe_router_load_balancing_type=aux_loss aux_loss; moe_aux_loss_coeff=0.1 0.1",
     "Each loss has one coefficient; sinkhorn assigns experts itself and has no loss."},
    {"balancing-weights", true, balancing_weights, "moe_aux_loss_coeff=0.1 0.2",
     "Each kind of loss has a weight of its own.", "moe_router_load_balancing_type"},
    {"sinkhorn-loss", true, sinkhorn_loss, "moe_router_load_balancing_type=sinkhorn; moe_aux_loss_coeff=0.01",
     "Sinkhorn routing has no loss that the coefficient could weigh; Megatron rejects it in the first step.",
     "moe_router_load_balancing_type"},
    {"sinkhorn-choice", false, sinkhorn_choice,
     "moe_router_load_balancing_type=sinkhorn; moe_router_enable_expert_bias=true; "
     "moe_router_score_function=sigmoid",
     "Sinkhorn assigns experts without a bias, and Megatron drops no tokens of it.",
     "moe_router_load_balancing_type"},
    {"capacity", false, capacity, "moe_expert_capacity_factor=0", "Every token would be dropped."},
    {"capacity-needed", false, capacity_needed, "moe_pad_expert_input_to_capacity=true",
     "Without a capacity there is no number of rows to pad to.", "moe_expert_capacity_factor"},
};

}  // namespace

std::span<const Rule> moe_rules() { return kMoe; }

}  // namespace colonnade::rules
