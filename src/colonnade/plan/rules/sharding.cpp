// Rules of what data ranks hold a part of.
#include <algorithm>
#include <bit>
#include <numeric>

#include "colonnade/config/parse.h"
#include "colonnade/plan/buckets.h"
#include "colonnade/plan/layout_string.h"
#include "colonnade/plan/rules/table.h"
#include "colonnade/plan/schedule_kinds.h"

namespace colonnade::plan {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

constexpr const char* kStrategy = "--data-parallel-sharding-strategy";
constexpr const char* kInstances = "--num-distributed-optimizer-instances";
constexpr const char* kOuterStrategy = "--outer-dp-sharding-strategy";

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

/// Of a table that the end of the model looks up rows of and multiplies with.
Broken split_table(const Run& r) {
  const bool both = r.model.mtp_num_layers > 0 && !r.model.untie_embeddings_and_output_weights;
  if (!r.parallel.deterministic_mode || !both) return std::nullopt;
  const auto ends_apart = [](const StageBlocks& stage) { return stage.head && !stage.final_norm; };
  const bool waits = splits_backward(r.parallel);
  if (!waits && std::ranges::none_of(stages_if_sound(r), ends_apart)) return std::nullopt;
  if (waits)
    return Finding{"--deterministic-mode",
                   "must not meet --mtp-num-layers with tied embeddings where weight gradients wait",
                   "true",
                   {{"deterministic_mode", "false"}},
                   ""};
  std::string together = expand_layout(r.parallel.pipeline_model_parallel_layout);
  std::erase(together, 'm');
  together.insert(together.size() - 1, static_cast<std::size_t>(r.model.mtp_num_layers), 'm');
  return Finding{"--deterministic-mode",
                 "with --mtp-num-layers and tied embeddings m must be in the stage of L",
                 r.parallel.pipeline_model_parallel_layout,
                 {{"pipeline_model_parallel_layout", together}},
                 ""};
}

Broken idle_outer_strategy(const Run& r) {
  const config::Setting& s = config::setting("outer_dp_sharding_strategy");
  const char* other = "num_distributed_optimizer_instances";
  if (r.parallel.num_distributed_optimizer_instances > 1 || !gives_idle(r, s, other)) return std::nullopt;
  return Finding{kOuterStrategy,
                 fmt::format("does nothing without {} above 1", kInstances),
                 config::text_of(r, s),
                 {{s.key, s.default_text()}},
                 fmt::format("leave it out, or add {}", kInstances)};
}

std::string number_of_instances(const Run& r) {
  return text(std::int64_t{r.parallel.num_distributed_optimizer_instances});
}

/// So many instances, and what is idle with one.
std::vector<Edit> instances(const Run& r, int number) {
  std::vector<Edit> edits{{"num_distributed_optimizer_instances", text(std::int64_t{number})}};
  if (number == 1 && r.parallel.outer_dp_sharding_strategy != "no_shard")
    edits.push_back({"outer_dp_sharding_strategy", "no_shard"});
  return edits;
}

Broken instances_of_nothing(const Run& r) {
  const auto& p = r.parallel;
  if (p.num_distributed_optimizer_instances < 2 || p.deterministic_mode ||
      sharding_of(p) >= Sharding::kOptimizer)
    return std::nullopt;
  Finding found{kInstances, "needs data ranks that share optimizer states", number_of_instances(r), {}, ""};
  if (p.use_megatron_fsdp)
    found.edits = {{"data_parallel_sharding_strategy", "optim"}};
  else
    found.edits = {{"use_distributed_optimizer", "true"}};
  return found;
}

Broken instances_of_ranks(const Run& r) {
  const auto& p = r.parallel;
  const int n = p.num_distributed_optimizer_instances,
            data = p.data_parallel_size() * p.context_parallel_size;
  const std::int64_t expert_block =
      std::int64_t{p.expert_tensor()} * p.expert_model_parallel_size * p.pipeline_model_parallel_size;
  if (n < 2 || data < 1 || expert_block < 1) return std::nullopt;
  const bool experts = r.model.moe.num_experts > 0;
  const int copies = experts ? static_cast<int>(p.world_size / expert_block) : data;
  if (copies < 1 || (data % n == 0 && copies % n == 0)) return std::nullopt;
  return Finding{kInstances, "must divide the ranks that hold the same, of experts too",
                 experts ? fmt::format("{} for {} data ranks and {} of experts", n, data, copies)
                         : fmt::format("{} for {} data ranks", n, data),
                 instances(r, std::gcd(n, std::gcd(data, copies))), ""};
}

Broken instances_in_one_order(const Run& r) {
  const auto& p = r.parallel;
  if (!p.deterministic_mode || p.num_distributed_optimizer_instances < 2) return std::nullopt;
  return Finding{kInstances, "must not meet --deterministic-mode", number_of_instances(r), instances(r, 1),
                 ""};
}

Broken bf16_gradients(const Run& r) {
  const auto& p = r.parallel;
  if (!p.grad_reduce_in_bf16) return std::nullopt;
  const bool bf16 = r.model.params_dtype == config::ParamsDtype::kBfloat16;
  if (bf16 && !p.deterministic_mode) return std::nullopt;
  return Finding{"--grad-reduce-in-bf16",
                 bf16 ? "must not meet --deterministic-mode" : "needs weights in bf16",
                 "true",
                 {{"grad_reduce_in_bf16", "false"}},
                 bf16 ? "" : "leave it out, or add --bf16"};
}

Broken added_up_in_fp32(const Run& r) {
  const auto& p = r.parallel;
  const config::Setting& s = config::setting("ddp_reduce_scatter_with_fp32_accumulation");
  const bool scatters = sharding_of(p) >= Sharding::kOptimizer;
  if ((p.grad_reduce_in_bf16 && scatters) || !gives_idle(r, s, "grad_reduce_in_bf16")) return std::nullopt;
  return Finding{
      s.flag,
      p.grad_reduce_in_bf16 ? "does nothing where no gradients are scattered"
                            : "does nothing without --grad-reduce-in-bf16",
      "true",
      {{s.key, "false"}},
      fmt::format("leave it out, or add {}{}{}", p.grad_reduce_in_bf16 ? "" : "--grad-reduce-in-bf16",
                  p.grad_reduce_in_bf16 || scatters ? "" : " and add ",
                  scatters ? "" : "--use-distributed-optimizer")};
}

Broken two_bucket_sizes(const Run& r) {
  const auto& p = r.parallel;
  if (p.ddp_num_buckets == 0 || p.ddp_bucket_size == 0) return std::nullopt;
  return Finding{"--ddp-num-buckets",
                 "must not meet --ddp-bucket-size, which says the same",
                 text(std::int64_t{p.ddp_num_buckets}),
                 {{"ddp_num_buckets", "0"}},
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
     "The end of the model looks up rows of the table and multiplies with it: in one pass both are added in another "
     "order than in two.",
     "mtp_num_layers untie_embeddings_and_output_weights delay_wgrad_compute pipeline_schedule "
     "pipeline_model_parallel_layout"},
    {"idle-outer-sharding", true, idle_outer_strategy, "outer_dp_sharding_strategy=optim",
     "It says what instances of the distributed optimizer share.", "num_distributed_optimizer_instances"},
    {"instances-sharding", true, instances_of_nothing, "num_distributed_optimizer_instances=2",
     "An instance is a group of data ranks that shares what is sharded; here nothing is.",
     "num_distributed_optimizer_instances use_megatron_fsdp"},
    {"instances-ranks", true, instances_of_ranks,
     "use_distributed_optimizer=true; num_distributed_optimizer_instances=3",
     "Instances are equal groups of the ranks that hold the same.",
     "world_size expert_model_parallel_size num_experts"},
    {"instances-deterministic", true, instances_in_one_order,
     "deterministic_mode=true; untie_embeddings_and_output_weights=true; num_distributed_optimizer_instances=2",
     "Sums within instances and between them would be another tree for every number of instances.",
     "deterministic_mode"},
    {"bf16-gradients", true, bf16_gradients, "grad_reduce_in_bf16=true",
     "Megatron reads it beside --bf16 only; and gradients that are rounded on their way differ with the number of "
     "ranks, which equal bits forbid.",
     "params_dtype deterministic_mode"},
    {"idle-fp32-accumulation", true, added_up_in_fp32, "ddp_reduce_scatter_with_fp32_accumulation=true",
     "Sums of gradients that travel in fp32 are in fp32, and what all ranks need is not scattered.",
     "grad_reduce_in_bf16 use_distributed_optimizer use_megatron_fsdp"},
    {"bucket-number", true, two_bucket_sizes, "ddp_num_buckets=4; ddp_bucket_size=1000",
     "The number gives another size.", "ddp_bucket_size"},
};

}  // namespace

std::span<const Rule> sharding_rules() { return kSharding; }

}  // namespace colonnade::plan
