// Rules of what data ranks hold a part of.
#include <algorithm>
#include <bit>

#include "colonnade/config/parse.h"
#include "colonnade/plan/rules/table.h"
#include "colonnade/plan/schedule_kinds.h"

namespace colonnade::plan {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

constexpr const char* kStrategy = "--data-parallel-sharding-strategy";

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

/// Of a table that the head looks up rows of and multiplies with.
Broken split_table(const Run& r) {
  const bool both = r.model.mtp_num_layers > 0 && !r.model.untie_embeddings_and_output_weights;
  if (!r.parallel.deterministic_mode || !both || !splits_backward(r.parallel)) return std::nullopt;
  return Finding{"--deterministic-mode",
                 "must not meet --mtp-num-layers with tied embeddings where weight gradients wait",
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
    {"deterministic-ranks", true, order_of_sums,
     "deterministic_mode=true; context_parallel_size=3; world_size=12; seq_length=24; attention_dropout=0",
     "Replicas are summed in one tree with the micro-batches; three of them would stand in it otherwise for every "
     "number of data ranks.",
     "deterministic_mode context_parallel_size"},
    {"deterministic-loss", true, loss_of_a_step,
     "deterministic_mode=true; untie_embeddings_and_output_weights=true; num_experts=8; add_bias_linear=false; "
     "sequence_parallel=true; moe_router_load_balancing_type=global_aux_loss; moe_aux_loss_coeff=0.01",
     "It balances over what was seen of a step so far, which is another part of it for every number of data "
     "ranks.",
     "deterministic_mode moe_router_load_balancing_type"},
    {"deterministic-waiting", true, split_table,
     "deterministic_mode=true; mtp_num_layers=1; position_embedding_type=rope; delay_wgrad_compute=true",
     "The head looks up rows of the table and multiplies with it: in one pass both are added in another order "
     "than in two.",
     "mtp_num_layers untie_embeddings_and_output_weights delay_wgrad_compute pipeline_schedule"},
};

}  // namespace

std::span<const Rule> sharding_rules() { return kSharding; }

}  // namespace colonnade::plan
