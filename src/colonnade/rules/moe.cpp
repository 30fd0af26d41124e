// Rules for mixtures of experts: sizes and parallelism, router, load balancing, capacity.
#include <algorithm>
#include <numeric>
#include <set>

#include "colonnade/config/layer_pattern.h"
#include "colonnade/config/parse.h"
#include "colonnade/layout/layer_kind.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;
using Score = config::RouterScore;

/// Equals kernels::kMaxExpertGroups: the router kernel has a fixed-size array of group scores.
constexpr std::int64_t kMaxGroups = 64;

bool has_experts(const Run& r) { return r.model.moe.num_experts > 0; }

Broken expert_parallel_without_experts(const Run& r) {
  const auto& p = r.parallel;
  if (has_experts(r) || p.expert_model_parallel_size <= 1) return std::nullopt;
  return Finding{"--expert-model-parallel-size",
                 "requires an MoE model (--num-experts)",
                 text(std::int64_t{p.expert_model_parallel_size}),
                 {{"expert_model_parallel_size", "1"}},
                 "remove the flag, or add --num-experts"};
}

/// As in Megatron, an expert width without --num-experts is an error, unless --moe-layer-freq selects only
/// some layers (scripts that serve dense and MoE models). Other MoE settings are notes (rules/effect.cpp).
Broken expert_width_without_experts(const Run& r) {
  const config::Setting& width = config::setting("moe_ffn_hidden_size");
  if (has_experts(r) || r.model.num_layers < 1 || !is_given_without_effect(r, width, "num_experts"))
    return std::nullopt;
  const auto layers = config::expand_layer_freq(r.model.moe.layer_freq, r.model.num_layers);
  if (layers && std::ranges::find(*layers, false) != layers->end()) return std::nullopt;
  return Finding{width.flag,
                 "requires an MoE model (--num-experts)",
                 config::text_of(r, width),
                 {{width.key, width.default_text()}},
                 "remove the flag, or add --num-experts"};
}

Broken experts_divisible(const Run& r) {
  const std::int64_t experts = r.model.moe.num_experts, ep = r.parallel.expert_model_parallel_size;
  if (experts < 1 || ep < 1 || experts % ep == 0) return std::nullopt;
  return Finding{"--expert-model-parallel-size",
                 "must divide --num-experts",
                 fmt::format("{} and {} experts", ep, experts),
                 {{"expert_model_parallel_size", text(std::gcd(experts, ep))}},
                 ""};
}

Broken expert_world_size(const Run& r) {
  const auto& p = r.parallel;
  const std::int64_t world = p.world_size, pp = p.pipeline_model_parallel_size, etp = p.expert_tensor_size();
  const std::int64_t ep = p.expert_model_parallel_size;
  const std::int64_t dense = std::int64_t{p.tensor_model_parallel_size} * p.context_parallel_size;
  if (expert_parallel_without_experts(r) || std::min({world, pp, etp, ep, dense}) < 1) return std::nullopt;
  if (etp * ep == dense || world % (etp * ep * pp) == 0)
    return std::nullopt;  // valid, or reported by `world`
  const std::string got = fmt::format("{} = expert tensor {} x expert {} x pipeline {} for {} ranks",
                                      etp * ep * pp, etp, ep, pp, world);
  if (!has_experts(r))
    return Finding{"--expert-tensor-parallel-size",
                   "x expert x pipeline size must divide the number of ranks",
                   got,
                   {{"expert_tensor_parallel_size", "0"}},
                   "remove the flag"};
  const std::int64_t divides = std::gcd(ep, r.model.moe.num_experts);
  std::int64_t fits = divides;
  while (fits > 1 && (divides % fits != 0 || world % (etp * fits * pp) != 0)) --fits;
  std::vector<Edit> edits{{"expert_model_parallel_size", text(fits)}};
  if (world % (etp * fits * pp) != 0) edits.push_back({"expert_tensor_parallel_size", "1"});
  return Finding{"--expert-model-parallel-size",
                 "x expert tensor x pipeline size must divide the number of ranks", got, std::move(edits),
                 ""};
}

Broken rank_order(const Run& r) {
  const auto& p = r.parallel;
  const std::int64_t dense = std::int64_t{p.tensor_model_parallel_size} * p.context_parallel_size;
  const std::int64_t expert = std::int64_t{p.expert_tensor_size()} * p.expert_model_parallel_size;
  if (!p.use_tp_pp_dp_mapping || p.pipeline_model_parallel_size <= 1 || dense == expert) return std::nullopt;
  return Finding{"--use-tp-pp-dp-mapping",
                 "requires tensor x context size = expert tensor x expert size with pipeline parallelism",
                 fmt::format("{} x {} and {} x {}", p.tensor_model_parallel_size, p.context_parallel_size,
                             p.expert_tensor_size(), p.expert_model_parallel_size),
                 {{"use_tp_pp_dp_mapping", "false"}},
                 "remove the flag"};
}

Broken layer_freq(const Run& r) {
  const auto& moe = r.model.moe;
  if (!has_experts(r) || r.model.num_layers < 1) return std::nullopt;
  const auto layers = config::expand_layer_freq(moe.layer_freq, r.model.num_layers);
  if (layers && std::ranges::find(*layers, true) != layers->end()) return std::nullopt;
  return Finding{"--moe-layer-freq",
                 layers ? "must select at least one MoE layer"
                        : "must be a number of at least 1, or a list with a 0 or 1 for each layer",
                 fmt::format("\"{}\" for {} layers", moe.layer_freq, r.model.num_layers),
                 {{"moe_layer_freq", "1"}},
                 "write --moe-layer-freq 1 for experts in all layers, or e.g. ([0]*3+[1]*58) for 61 layers"};
}

Broken expert_ffn(const Run& r) {
  const std::int64_t ffn = r.model.moe.ffn_hidden_size, etp = r.parallel.expert_tensor_size();
  if (!has_experts(r) || ffn < 1 || etp < 1 || ffn % etp == 0) return std::nullopt;
  return Finding{"--moe-ffn-hidden-size",
                 "must be a multiple of --expert-tensor-parallel-size",
                 fmt::format("{} and {}", ffn, etp),
                 {{"moe_ffn_hidden_size", text(round_up(ffn, etp))}},
                 ""};
}

Broken shared_expert_width(const Run& r) {
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
                 "requires --moe-token-dispatcher-type alltoall",
                 "allgather",
                 {{"moe_shared_expert_overlap", "false"}},
                 "remove the flag, or add --moe-token-dispatcher-type alltoall"};
}

Broken shared_expert_bias(const Run& r) {
  if (!has_experts(r) || !r.model.add_bias_linear || r.model.moe.shared_expert_intermediate_size == 0)
    return std::nullopt;
  return Finding{"--moe-shared-expert-intermediate-size",
                 "requires --disable-bias-linear",
                 "linear layers with biases",
                 {{"add_bias_linear", "false"}},
                 "add --disable-bias-linear"};
}

Broken experts_need_sequence_parallel(const Run& r) {
  const auto& p = r.parallel;
  if (!has_experts(r) || p.tensor_model_parallel_size <= 1 || p.sequence_parallel) return std::nullopt;
  return Finding{"--num-experts",
                 "requires --sequence-parallel when --tensor-model-parallel-size is above 1",
                 fmt::format("tensor size {} without it", p.tensor_model_parallel_size),
                 {{"sequence_parallel", "true"}},
                 ""};
}

// The router.

/// Number of experts a token can choose from.
std::int64_t candidate_experts(const config::Moe& moe) {
  const bool groups = moe.router_num_groups > 0 && moe.router_group_topk > 0;
  return groups ? moe.num_experts / moe.router_num_groups * moe.router_group_topk : moe.num_experts;
}

/// Edits to the nearest valid expert groups below those requested: equal group sizes, at most one group per
/// chosen expert, and enough experts in the chosen groups.
std::vector<Edit> valid_groups(const config::Moe& moe) {
  for (std::int64_t groups = std::min(moe.router_num_groups, kMaxGroups); groups > 1; --groups) {
    if (moe.num_experts % groups != 0) continue;
    for (std::int64_t chosen = std::min(moe.router_group_topk, groups); chosen > 0; --chosen) {
      const bool has_group_score = moe.router_group_best > 0 || moe.router_topk >= chosen;
      if (has_group_score && moe.num_experts / groups * chosen >= moe.router_topk)
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
                   "remove the flag, or add --moe-router-num-groups"};
  return Finding{"--moe-router-group-topk", "must be at most --moe-router-num-groups", got, valid_groups(moe),
                 ""};
}

Broken groups_experts(const Run& r) {
  const auto& moe = r.model.moe;
  const std::int64_t groups = moe.router_num_groups;
  if (!has_experts(r) || groups == 0 || moe.router_group_topk == 0 ||
      (moe.num_experts % groups == 0 && groups <= kMaxGroups))
    return std::nullopt;
  return Finding{"--moe-router-num-groups",
                 fmt::format("must divide --num-experts and be at most {}", kMaxGroups),
                 fmt::format("{} and {} experts", groups, moe.num_experts), valid_groups(moe), ""};
}

Broken groups_topk(const Run& r) {
  const auto& moe = r.model.moe;
  const std::int64_t chosen = moe.router_group_topk;
  if (!has_experts(r) || moe.router_num_groups == 0 || moe.router_group_best > 0 || moe.router_topk >= chosen)
    return std::nullopt;
  return Finding{"--moe-router-group-topk", "must be at most --moe-router-topk",
                 fmt::format("{} and {}", chosen, moe.router_topk), valid_groups(moe), ""};
}

Broken topk(const Run& r) {
  const auto& moe = r.model.moe;
  if (!has_experts(r) || candidate_experts(moe) < 1 || moe.router_topk <= candidate_experts(moe))
    return std::nullopt;
  if (groups(r) || groups_experts(r) || groups_topk(r)) return std::nullopt;  // reported by those rules
  std::vector<Edit> edits{{"moe_router_topk", text(candidate_experts(moe))}};
  if (candidate_experts(moe) == 1 && moe.router_score_function == Score::kSoftmax && !moe.uses_sinkhorn())
    edits.push_back({"moe_router_pre_softmax", "true"});
  return Finding{"--moe-router-topk", "must be at most the number of experts a token can choose from",
                 fmt::format("{} of {}", moe.router_topk, candidate_experts(moe)), std::move(edits), ""};
}

Broken topk_one(const Run& r) {
  const auto& moe = r.model.moe;
  if (!has_experts(r) || moe.router_topk != 1 || moe.router_score_function != Score::kSoftmax ||
      moe.router_pre_softmax || moe.uses_sinkhorn())
    return std::nullopt;
  return Finding{"--moe-router-topk",
                 "of 1 with softmax requires --moe-router-pre-softmax",
                 "a softmax over the one chosen expert",
                 {{"moe_router_pre_softmax", "true"}},
                 ""};
}

Broken group_best(const Run& r) {
  const auto& moe = r.model.moe;
  const std::int64_t best = moe.router_group_best, groups = moe.router_num_groups;
  if (!has_experts(r) || best == 0) return std::nullopt;
  if (groups > 0 && (moe.num_experts % groups != 0 || best <= moe.num_experts / groups)) return std::nullopt;
  return Finding{
      "--moe-router-group-best",
      groups > 0 ? "must be at most the number of experts per group" : "requires --moe-router-num-groups",
      fmt::format("{} and {} experts in {} groups", best, moe.num_experts, groups),
      {{"moe_router_group_best", "0"}},
      ""};
}

// Load balancing.

Broken balancing_types(const Run& r) {
  const auto& kinds = r.model.moe.router_load_balancing_type;
  const std::set<std::string> different(kinds.begin(), kinds.end());
  if (!has_experts(r)) return std::nullopt;
  if (different.size() == kinds.size() && (kinds.size() == 1 || !different.contains("sinkhorn")))
    return std::nullopt;
  return Finding{"--moe-router-load-balancing-type",
                 "must name each type once, and sinkhorn alone",
                 fmt::format("{}", fmt::join(kinds, " ")),
                 {{"moe_router_load_balancing_type", "aux_loss"},
                  {"moe_aux_loss_coeff", text(r.model.moe.aux_loss_coeff.front())}},
                 "name each type once, with one --moe-aux-loss-coeff each"};
}

Broken balancing_coefficients(const Run& r) {
  const auto& moe = r.model.moe;
  const std::size_t kinds = moe.router_load_balancing_type.size();
  if (!has_experts(r) || moe.aux_loss_coeff.empty() || moe.aux_loss_coeff.size() == kinds)
    return std::nullopt;
  std::vector<double> fitting = moe.aux_loss_coeff;
  fitting.resize(kinds, fitting.back());
  return Finding{"--moe-aux-loss-coeff",
                 "must have one number per --moe-router-load-balancing-type",
                 fmt::format("{} for {}", fmt::join(moe.aux_loss_coeff, " "),
                             fmt::join(moe.router_load_balancing_type, " ")),
                 {{"moe_aux_loss_coeff", fmt::format("{}", fmt::join(fitting, " "))}},
                 ""};
}

Broken sinkhorn_loss(const Run& r) {
  const auto& moe = r.model.moe;
  if (!has_experts(r) || !moe.uses_sinkhorn() || moe.aux_loss_coeff.size() != 1 || moe.aux_loss_coeff[0] == 0)
    return std::nullopt;
  return Finding{"--moe-aux-loss-coeff",
                 "must be 0 with --moe-router-load-balancing-type sinkhorn",
                 text(moe.aux_loss_coeff[0]),
                 {{"moe_aux_loss_coeff", "0"}},
                 "remove the flag, or name a loss in --moe-router-load-balancing-type"};
}

/// Settings of score-based routing.
Broken sinkhorn_options(const Run& r) {
  const auto& moe = r.model.moe;
  if (!has_experts(r) || !moe.uses_sinkhorn()) return std::nullopt;
  Finding found{"", "must not be set with --moe-router-load-balancing-type sinkhorn", "", {}, ""};
  found.add_if(r, moe.router_enable_expert_bias, "moe_router_enable_expert_bias", "false");
  found.add_if(r, moe.expert_capacity_factor.has_value(), "moe_expert_capacity_factor", "unset");
  if (moe.pad_expert_input_to_capacity && moe.expert_capacity_factor)
    found.add_if(r, true, "moe_pad_expert_input_to_capacity", "false");
  found.fix = removal(found);
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
                 "remove the flag, so that no token is dropped"};
}

Broken padding_needs_capacity(const Run& r) {
  const auto& moe = r.model.moe;
  if (!has_experts(r) || moe.expert_capacity_factor || !moe.pad_expert_input_to_capacity) return std::nullopt;
  return Finding{"--moe-pad-expert-input-to-capacity",
                 "requires --moe-expert-capacity-factor",
                 "none",
                 {{"moe_pad_expert_input_to_capacity", "false"}},
                 "remove the flag, or add --moe-expert-capacity-factor 1"};
}

Broken hybrid_dispatcher(const Run& r) {
  const config::Moe& moe = r.model.moe;
  if (!r.parallel.hybrid_context_parallel || !layout::dispatches_tokens(r.model, r.parallel))
    return std::nullopt;
  if (moe.token_dispatcher_type != config::TokenDispatcher::kAllGather) return std::nullopt;
  return Finding{"--moe-token-dispatcher-type",
                 "must be alltoall with --hybrid-context-parallel and sharded experts",
                 "allgather",
                 {{"moe_token_dispatcher_type", "alltoall"}},
                 ""};
}

Broken hybrid_capacity(const Run& r) {
  const auto& factor = r.model.moe.expert_capacity_factor;
  if (!r.parallel.hybrid_context_parallel || r.model.moe.num_experts == 0 || !factor) return std::nullopt;
  return Finding{"--moe-expert-capacity-factor",
                 "is not supported with --hybrid-context-parallel",
                 text(*factor),
                 {{"moe_expert_capacity_factor", "unset"}, {"moe_pad_expert_input_to_capacity", "false"}},
                 "remove the flag"};
}

Broken hybrid_balancing(const Run& r) {
  const auto& kinds = r.model.moe.router_load_balancing_type;
  if (!r.parallel.hybrid_context_parallel || r.model.moe.num_experts == 0 ||
      std::ranges::find(kinds, "global_aux_loss") == kinds.end())
    return std::nullopt;
  std::vector<std::string> others = kinds;
  std::ranges::replace(others, std::string("global_aux_loss"), std::string("aux_loss"));
  return Finding{"--moe-router-load-balancing-type",
                 "must not be global_aux_loss with --hybrid-context-parallel",
                 fmt::format("{}", fmt::join(kinds, " ")),
                 {{"moe_router_load_balancing_type", fmt::format("{}", fmt::join(others, " "))}},
                 ""};
}

constexpr Rule kMoe[] = {
    {"experts-without", false, expert_parallel_without_experts, "num_experts=0; expert_model_parallel_size=2",
     "", "num_experts"},
    {"experts-width", false, expert_width_without_experts, "num_experts=0; moe_ffn_hidden_size=32",
     "An expert width without experts usually means a forgotten --num-experts; Megatron rejects it too.",
     "num_experts moe_layer_freq num_layers"},
    {"experts-ranks", false, experts_divisible, "num_experts=6; expert_model_parallel_size=4; world_size=16",
     "Every expert-parallel rank holds the same number of experts.", "num_experts"},
    {"experts-world", false, expert_world_size, "expert_model_parallel_size=4",
     "MoE layers factor the same ranks as expert tensor x expert x expert data x pipeline.",
     "num_experts tensor_model_parallel_size pipeline_model_parallel_size expert_tensor_parallel_size"},
    {"experts-rank-order", false, rank_order, "use_tp_pp_dp_mapping=true; expert_model_parallel_size=2",
     "With data parallelism outermost, dense and expert layers have the same pipeline groups only if these "
     "products are equal.",
     "tensor_model_parallel_size context_parallel_size expert_tensor_parallel_size "
     "expert_model_parallel_size pipeline_model_parallel_size"},
    {"experts-layers", false, layer_freq, "moe_layer_freq=[1,0]",
     "N places experts in every N-th layer, starting with the first.", "num_layers num_experts"},
    {"experts-ffn", false, expert_ffn, "moe_ffn_hidden_size=101",
     "Expert tensor parallelism shards the FFN dimension of each expert evenly (gate and up separately).",
     "expert_tensor_parallel_size tensor_model_parallel_size ffn_hidden_size hidden_size"},
    {"experts-shared", false, shared_expert_width, "moe_shared_expert_intermediate_size=33",
     "Shared experts are sharded over tensor-parallel ranks, like a dense MLP.",
     "tensor_model_parallel_size"},
    {"experts-shared-overlap", false, shared_overlap,
     "moe_shared_expert_intermediate_size=32; moe_shared_expert_overlap=true",
     "Shared experts overlap with the all-to-all of the routed tokens; the all-gather dispatcher "
     "communicates before routing.",
     "moe_token_dispatcher_type moe_shared_expert_intermediate_size"},
    {"experts-shared-bias", false, shared_expert_bias,
     "add_bias_linear=true; moe_shared_expert_intermediate_size=32",
     "Biases are implemented for routed experts and the router, not for shared experts.", "num_experts"},
    {"experts-sequence", true, experts_need_sequence_parallel, "sequence_parallel=false",
     "Without it every tensor-parallel rank would dispatch the same tokens, and expert gradients would be "
     "counted once per rank. Megatron fails in the first step.",
     "num_experts tensor_model_parallel_size"},
    {"router-topk", false, topk, "moe_router_topk=9", "A token selects each expert at most once.",
     "num_experts moe_router_num_groups moe_router_group_topk"},
    {"router-topk-one", false, topk_one, "moe_router_topk=1",
     "The softmax over one selected expert is always 1, so the router would get no gradient.",
     "moe_router_topk moe_router_score_function moe_router_load_balancing_type"},
    {"router-groups", false, groups, "moe_router_group_topk=2",
     "A token selects its experts from the best group-topk of num-groups groups.",
     "moe_router_num_groups moe_router_group_topk"},
    {"router-groups-experts", false, groups_experts,
     "moe_router_num_groups=3; moe_router_group_topk=1; moe_router_topk=2",
     "Groups have equal size, and the router kernel supports a limited number of them.", "num_experts"},
    {"router-groups-topk", false, groups_topk,
     "moe_router_num_groups=4; moe_router_group_topk=4; moe_router_topk=2",
     "A group's score is the sum of its best topk / group-topk scores (rounded down), which must be at least "
     "one.",
     "moe_router_topk"},
    {"router-group-best", false, group_best, "moe_router_group_best=2",
     "A group's score is the sum of that many of its expert scores.", "moe_router_num_groups num_experts"},
    {"moe-balancing-types", true, balancing_types,
     "moe_router_load_balancing_type=aux_loss aux_loss; moe_aux_loss_coeff=0.1 0.1",
     "Each auxiliary loss has one coefficient; sinkhorn routing has no auxiliary loss."},
    {"balancing-weights", true, balancing_coefficients, "moe_aux_loss_coeff=0.1 0.2",
     "Each auxiliary loss has its own coefficient.", "moe_router_load_balancing_type"},
    {"sinkhorn-loss", true, sinkhorn_loss, "moe_router_load_balancing_type=sinkhorn; moe_aux_loss_coeff=0.01",
     "Sinkhorn routing has no auxiliary loss; Megatron fails in the first step.",
     "moe_router_load_balancing_type"},
    {"sinkhorn-choice", false, sinkhorn_options,
     "moe_router_load_balancing_type=sinkhorn; moe_router_enable_expert_bias=true; "
     "moe_router_score_function=sigmoid",
     "Sinkhorn routing uses no expert bias, and Megatron drops no tokens with it.",
     "moe_router_load_balancing_type"},
    {"capacity", false, capacity, "moe_expert_capacity_factor=0", "A capacity of 0 would drop every token."},
    {"capacity-needed", false, padding_needs_capacity, "moe_pad_expert_input_to_capacity=true", "",
     "moe_expert_capacity_factor"},
};

/// With --hybrid-context-parallel.
constexpr Rule kHybridMoe[] = {
    {"hybrid-gathered", true, hybrid_dispatcher,
     "num_experts=8; add_bias_linear=false; sequence_parallel=true; expert_model_parallel_size=2",
     "The all-gather dispatcher needs the same number of tokens on every rank.",
     "num_experts expert_model_parallel_size expert_tensor_parallel_size tensor_model_parallel_size"},
    {"hybrid-capacity", true, hybrid_capacity,
     "num_experts=8; add_bias_linear=false; sequence_parallel=true; moe_token_dispatcher_type=alltoall; "
     "moe_expert_capacity_factor=1",
     "The capacity is relative to a rank's tokens in a micro-batch; a short sequence may have one or none.",
     "num_experts"},
    {"hybrid-balance", true, hybrid_balancing,
     "num_experts=8; add_bias_linear=false; sequence_parallel=true; moe_token_dispatcher_type=alltoall; "
     "moe_router_load_balancing_type=global_aux_loss; moe_aux_loss_coeff=0.01",
     "The global loss averages a micro-batch over data-parallel ranks, which here hold unrelated sequences.",
     "num_experts"},
};

}  // namespace

std::span<const Rule> hybrid_routing_rules() { return kHybridMoe; }

std::span<const Rule> moe_rules() { return kMoe; }

}  // namespace colonnade::rules
