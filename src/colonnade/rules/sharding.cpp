// Rules of what data ranks hold a part of.
#include <algorithm>
#include <numeric>

#include "colonnade/layout/buckets.h"
#include "colonnade/layout/layout_string.h"
#include "colonnade/rules/table.h"
#include "colonnade/schedule/kinds.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

constexpr const char* kStrategy = "--data-parallel-sharding-strategy";
constexpr const char* kInstances = "--num-distributed-optimizer-instances";

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

/// Of a table that the end of the model looks up rows of and multiplies with.
Broken split_table(const Run& r) {
  const bool both = r.model.mtp_num_layers > 0 && !r.model.untie_embeddings_and_output_weights;
  if (!r.parallel.deterministic_mode || !both) return std::nullopt;
  const auto ends_apart = [](const layout::StageBlocks& stage) { return stage.head && !stage.final_norm; };
  const bool waits = schedule::splits_backward(r.parallel);
  if (!waits && std::ranges::none_of(stages_if_sound(r), ends_apart)) return std::nullopt;
  if (waits)
    return Finding{"--deterministic-mode",
                   "must not meet --mtp-num-layers with tied embeddings where weight gradients wait",
                   "true",
                   {{"deterministic_mode", "false"}},
                   ""};
  std::string together = layout::expand_layout(r.parallel.pipeline_model_parallel_layout);
  std::erase(together, 'm');
  together.insert(together.size() - 1, static_cast<std::size_t>(r.model.mtp_num_layers), 'm');
  return Finding{"--deterministic-mode",
                 "with --mtp-num-layers and tied embeddings m must be in the stage of L",
                 r.parallel.pipeline_model_parallel_layout,
                 {{"pipeline_model_parallel_layout", together}},
                 ""};
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
  if (p.num_distributed_optimizer_instances < 2 || layout::sharding_of(p) >= layout::Sharding::kOptimizer)
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

Broken bf16_gradients(const Run& r) {
  const auto& p = r.parallel;
  if (!p.grad_reduce_in_bf16) return std::nullopt;
  if (r.model.params_dtype == config::ParamsDtype::kBfloat16) return std::nullopt;
  return Finding{"--grad-reduce-in-bf16",
                 "needs weights in bf16",
                 "true",
                 {{"grad_reduce_in_bf16", "false"}},
                 "leave it out, or add --bf16"};
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
    {"sharding-none", true, contradiction,
     "use_megatron_fsdp=true; use_distributed_optimizer=true; data_parallel_sharding_strategy=no_shard",
     "One shards the optimizer's states, the other nothing.", "use_megatron_fsdp"},
    {"deterministic-waiting", true, split_table,
     "deterministic_mode=true; mtp_num_layers=1; position_embedding_type=rope; delay_wgrad_compute=true",
     "The end of the model looks up rows of the table and multiplies with it: in one pass both are added in another "
     "order than in two.",
     "mtp_num_layers untie_embeddings_and_output_weights delay_wgrad_compute pipeline_schedule "
     "pipeline_model_parallel_layout"},
    {"instances-sharding", true, instances_of_nothing, "num_distributed_optimizer_instances=2",
     "An instance is a group of data ranks that shares what is sharded; here nothing is.",
     "num_distributed_optimizer_instances use_megatron_fsdp"},
    {"instances-ranks", true, instances_of_ranks,
     "use_distributed_optimizer=true; num_distributed_optimizer_instances=3",
     "Instances are equal groups of the ranks that hold the same.",
     "world_size expert_model_parallel_size num_experts"},
    {"bf16-gradients", true, bf16_gradients, "grad_reduce_in_bf16=true",
     "Megatron reads it beside --bf16 only.", "params_dtype"},
    {"bucket-number", true, two_bucket_sizes, "ddp_num_buckets=4; ddp_bucket_size=1000",
     "The number gives another size.", "ddp_bucket_size"},
};

}  // namespace

std::span<const Rule> sharding_rules() { return kSharding; }

}  // namespace colonnade::rules
