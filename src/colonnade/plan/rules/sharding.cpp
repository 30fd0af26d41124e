// Rules of what data ranks hold a part of.
#include <algorithm>
#include <bit>

#include "colonnade/config/parse.h"
#include "colonnade/plan/buckets.h"
#include "colonnade/plan/rules/table.h"
#include "colonnade/plan/schedule_kinds.h"

namespace colonnade::plan {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

constexpr const char* kStrategy = "--data-parallel-sharding-strategy";

/// Whether gradients, and maybe parameters, are whole only while a block uses them.
bool by_unit(const Run& r) { return sharding_of(r.parallel) >= Sharding::kGradients; }

/// What cuts gradients, with `other` which must not meet it, and the edits that cut no longer.
Finding cut(const Run& r, const char* rule, const std::string& other) {
  const auto& p = r.parallel;
  const bool shards = p.use_megatron_fsdp && p.data_parallel_sharding_strategy.starts_with("optim_grads");
  Finding found{p.deterministic_mode ? "--deterministic-mode" : kStrategy, rule, "", {}, ""};
  found.got = fmt::format("{} and {}", shards ? p.data_parallel_sharding_strategy : "true", other);
  if (p.deterministic_mode) found.edits.push_back({"deterministic_mode", "false"});
  if (shards) found.edits.push_back({"data_parallel_sharding_strategy", "optim"});
  return found;
}

Broken idle_strategy(const Run& r) {
  const config::Setting& s = config::setting("data_parallel_sharding_strategy");
  if (r.parallel.use_megatron_fsdp || !gives_idle(r, s, "use_megatron_fsdp")) return std::nullopt;
  return Finding{kStrategy,
                 "does nothing without --use-megatron-fsdp",
                 config::text_of(r, s),
                 {{s.key, s.default_text()}},
                 "leave it out, or add --use-megatron-fsdp"};
}

Broken contradiction(const Run& r) {
  const auto& p = r.parallel;
  const bool none = p.use_megatron_fsdp && p.data_parallel_sharding_strategy == "no_shard";
  if (!none || !p.use_distributed_optimizer) return std::nullopt;
  return Finding{kStrategy,
                 "no_shard must not meet --use-distributed-optimizer",
                 p.data_parallel_sharding_strategy,
                 {{"data_parallel_sharding_strategy", "optim"}},
                 ""};
}

Broken tied(const Run& r) {
  if (!by_unit(r) || !r.model.word_embeddings_shared()) return std::nullopt;
  return cut(r, "gradients and weights are cut only where the embedding is read by no other block",
             r.model.untie_embeddings_and_output_weights ? "--mtp-num-layers" : "tied embeddings");
}

Broken split_backward(const Run& r) {
  const auto& p = r.parallel;
  if (!by_unit(r)) return std::nullopt;
  const bool splits = std::ranges::any_of(schedule_kinds(), [&](const ScheduleKind& kind) {
    return kind.splits_backward && kind.name == p.pipeline_schedule;
  });
  if (!p.delay_wgrad_compute && !splits) return std::nullopt;
  return cut(r, "gradients and weights are cut only where no weight gradient waits",
             p.delay_wgrad_compute ? "--delay-wgrad-compute" : p.pipeline_schedule);
}

Broken shared_heads(const Run& r) {
  const std::int64_t groups = r.model.num_query_groups, tp = r.parallel.tensor_model_parallel_size;
  if (!by_unit(r) || groups < 1 || tp <= groups) return std::nullopt;
  return cut(r, "gradients and weights are cut only where no tensor ranks share key-value heads",
             fmt::format("{} groups on {} tensor ranks", groups, tp));
}

/// Sums of all replicas are taken in pairs: of two halves, and halves of halves.
Broken order_of_sums(const Run& r) {
  const auto& p = r.parallel;
  if (!p.deterministic_mode) return std::nullopt;
  const auto even = [](int n) { return std::has_single_bit(static_cast<unsigned>(std::max(n, 1))); };
  const bool experts = r.model.moe.num_experts > 0;
  if (even(p.context_parallel_size) && (!experts || even(p.tensor_model_parallel_size))) return std::nullopt;
  return Finding{"--deterministic-mode",
                 "needs context ranks, and with experts tensor ranks, that are a power of two",
                 fmt::format("{} context ranks and {} tensor ranks", p.context_parallel_size,
                             p.tensor_model_parallel_size),
                 {{"deterministic_mode", "false"}},
                 ""};
}

Broken loss_of_a_step(const Run& r) {
  const auto& kinds = r.model.moe.router_load_balancing_type;
  if (!r.parallel.deterministic_mode || std::ranges::find(kinds, "global_aux_loss") == kinds.end())
    return std::nullopt;
  return Finding{"--deterministic-mode",
                 "must not meet --moe-router-load-balancing-type global_aux_loss",
                 "true",
                 {{"deterministic_mode", "false"}},
                 ""};
}

constexpr Rule kSharding[] = {
    {"idle-sharding", true, idle_strategy, "data_parallel_sharding_strategy=optim",
     "It says what that way of data parallelism shards.", "use_megatron_fsdp"},
    {"sharding-none", true, contradiction,
     "use_megatron_fsdp=true; use_distributed_optimizer=true; data_parallel_sharding_strategy=no_shard",
     "One shards the optimizer's states, the other nothing.", "use_megatron_fsdp"},
    {"sharding-tied", true, tied, "use_megatron_fsdp=true",
     "A table that two blocks read would have to be whole while either computes.", "use_megatron_fsdp"},
    {"sharding-waiting", true, split_backward,
     "use_megatron_fsdp=true; untie_embeddings_and_output_weights=true; delay_wgrad_compute=true",
     "Whole gradients of many blocks would lie there until their weights' turn.",
     "use_megatron_fsdp pipeline_schedule"},
    {"deterministic-ranks", true, order_of_sums,
     "deterministic_mode=true; untie_embeddings_and_output_weights=true; context_parallel_size=3; world_size=12; "
     "seq_length=24; "
     "attention_dropout=0",
     "Replicas are summed in one tree with the micro-batches; three of them would stand in it otherwise for every "
     "number of data ranks.",
     "deterministic_mode context_parallel_size"},
    {"deterministic-loss", true, loss_of_a_step,
     "deterministic_mode=true; untie_embeddings_and_output_weights=true; num_experts=8; add_bias_linear=false; "
     "sequence_parallel=true; moe_router_load_balancing_type=global_aux_loss; moe_aux_loss_coeff=0.01",
     "It balances over what was seen of a step so far, which is another part of it for every number of data "
     "ranks.",
     "deterministic_mode moe_router_load_balancing_type"},
    {"sharding-heads", true, shared_heads,
     "use_megatron_fsdp=true; untie_embeddings_and_output_weights=true; num_query_groups=1",
     "Rows that several tensor ranks hold are summed over whole gradients.",
     "use_megatron_fsdp tensor_model_parallel_size"},
};

}  // namespace

std::span<const Rule> sharding_rules() { return kSharding; }

}  // namespace colonnade::plan
