// Rules for sharding over data-parallel ranks.
#include <algorithm>
#include <numeric>

#include "colonnade/base/error.h"
#include "colonnade/layout/buckets.h"
#include "colonnade/layout/layout_string.h"
#include "colonnade/layout/stages.h"
#include "colonnade/rules/table.h"
#include "colonnade/schedule/kinds.h"

namespace colonnade::rules {

using layout::BlockKind;

namespace {

using config::Run;
using Broken = std::optional<Finding>;

constexpr const char* kStrategy = "--data-parallel-sharding-strategy";
constexpr const char* kInstances = "--num-distributed-optimizer-instances";

Broken fsdp_without_sharding(const Run& r) {
  const auto& p = r.parallel;
  const bool none = p.use_megatron_fsdp && p.data_parallel_sharding_strategy == "no_shard";
  if (!none || !p.use_distributed_optimizer) return std::nullopt;
  return Finding{kStrategy,
                 "no_shard is not supported with --use-distributed-optimizer",
                 p.data_parallel_sharding_strategy,
                 {{"data_parallel_sharding_strategy", "optim"}},
                 ""};
}

/// Whether a virtual stage holds the head without the final norm; false if another rule rejects the split.
bool has_stage_with_head_only(const Run& r) {
  try {
    return std::ranges::any_of(layout::split_stages(r.model, r.parallel),
                               [](const layout::StageBlocks& stage) {
                                 return stage.has(BlockKind::kHead) && !stage.has(BlockKind::kFinalNorm);
                               });
  } catch (const ConfigError&) {
    return false;
  }
}

/// Word embeddings that MTP layers look up and the tied output layer multiplies with.
Broken deterministic_tied_embeddings(const Run& r) {
  const bool has_two_uses = r.model.mtp_num_layers > 0 && !r.model.untie_embeddings_and_output_weights;
  if (!r.parallel.deterministic_mode || !has_two_uses) return std::nullopt;
  const bool splits = schedule::splits_backward(r.parallel);
  if (!splits && !has_stage_with_head_only(r)) return std::nullopt;
  if (splits)
    return Finding{"--deterministic-mode",
                   "is not supported with --mtp-num-layers, tied embeddings and delayed weight gradients",
                   "true",
                   {{"deterministic_mode", "false"}},
                   ""};
  std::string together = layout::expand_layout(r.parallel.pipeline_model_parallel_layout);
  std::erase(together, 'm');
  together.insert(together.size() - 1, static_cast<std::size_t>(r.model.mtp_num_layers), 'm');
  return Finding{"--deterministic-mode",
                 "requires m in the stage of L with --mtp-num-layers and tied embeddings",
                 r.parallel.pipeline_model_parallel_layout,
                 {{"pipeline_model_parallel_layout", together}},
                 ""};
}

std::string instance_count(const Run& r) {
  return text(std::int64_t{r.parallel.num_distributed_optimizer_instances});
}

/// Edits that set the number of instances; one instance also resets settings without effect.
std::vector<Edit> set_instances(const Run& r, int number) {
  std::vector<Edit> edits{{"num_distributed_optimizer_instances", text(std::int64_t{number})}};
  if (number == 1 && r.parallel.outer_dp_sharding_strategy != "no_shard")
    edits.push_back({"outer_dp_sharding_strategy", "no_shard"});
  return edits;
}

Broken instances_need_sharding(const Run& r) {
  const auto& p = r.parallel;
  if (p.num_distributed_optimizer_instances < 2 || layout::sharding_of(p) >= layout::Sharding::kOptimizer)
    return std::nullopt;
  Finding found{kInstances, "requires a sharded optimizer", instance_count(r), {}, ""};
  if (p.use_megatron_fsdp)
    found.edits = {{"data_parallel_sharding_strategy", "optim"}};
  else
    found.edits = {{"use_distributed_optimizer", "true"}};
  return found;
}

Broken instances_divisible(const Run& r) {
  const auto& p = r.parallel;
  const int n = p.num_distributed_optimizer_instances,
            data = p.data_parallel_size() * p.context_parallel_size;
  const std::int64_t expert_block =
      std::int64_t{p.expert_tensor_size()} * p.expert_model_parallel_size * p.pipeline_model_parallel_size;
  if (n < 2 || data < 1 || expert_block < 1) return std::nullopt;
  const bool experts = r.model.moe.num_experts > 0;
  const int replicas = experts ? static_cast<int>(p.world_size / expert_block) : data;
  if (replicas < 1 || (data % n == 0 && replicas % n == 0)) return std::nullopt;
  return Finding{kInstances, "must divide the number of data-parallel replicas, dense and expert",
                 experts ? fmt::format("{} for {} dense and {} expert replicas", n, data, replicas)
                         : fmt::format("{} for {} replicas", n, data),
                 set_instances(r, std::gcd(n, std::gcd(data, replicas))), ""};
}

Broken bf16_gradients(const Run& r) {
  const auto& p = r.parallel;
  if (!p.grad_reduce_in_bf16) return std::nullopt;
  if (config::dtypes_of(r).parameter == config::Dtype::kBfloat16) return std::nullopt;
  return Finding{"--grad-reduce-in-bf16",
                 "requires --bf16",
                 "none",
                 {{"grad_reduce_in_bf16", "false"}},
                 "remove the flag, or add --bf16"};
}

Broken two_bucket_sizes(const Run& r) {
  const auto& p = r.parallel;
  if (p.ddp_num_buckets == 0 || p.ddp_bucket_size == 0) return std::nullopt;
  return Finding{"--ddp-num-buckets",
                 "is not supported with --ddp-bucket-size",
                 text(std::int64_t{p.ddp_num_buckets}),
                 {{"ddp_num_buckets", "0"}},
                 ""};
}

Broken weight_hash(const Run& r) {
  const auto& interval = r.training.check_weight_hash_across_dp_replicas_interval;
  if (!interval || layout::sharding_of(r.parallel) < layout::Sharding::kParameters) return std::nullopt;
  return Finding{"--check-weight-hash-across-dp-replicas-interval",
                 "is not supported with --data-parallel-sharding-strategy optim_grads_params",
                 text(*interval),
                 {{"check_weight_hash_across_dp_replicas_interval", "unset"}},
                 "remove the flag"};
}

constexpr Rule kSharding[] = {
    {"weight-hash", true, weight_hash,
     "use_megatron_fsdp=true; check_weight_hash_across_dp_replicas_interval=10",
     "With sharded parameters no two replicas hold the same values.",
     "use_megatron_fsdp data_parallel_sharding_strategy"},
    {"sharding-none", true, fsdp_without_sharding,
     "use_megatron_fsdp=true; use_distributed_optimizer=true; data_parallel_sharding_strategy=no_shard",
     "--use-distributed-optimizer shards optimizer states, no_shard shards nothing.", "use_megatron_fsdp"},
    {"deterministic-waiting", true, deterministic_tied_embeddings,
     "deterministic_mode=true; mtp_num_layers=1; position_embedding_type=rope; delay_wgrad_compute=true",
     "The lookup and the output GEMM both add to the embedding gradient; delayed weight gradients change "
     "the order of these sums.",
     "mtp_num_layers untie_embeddings_and_output_weights delay_wgrad_compute pipeline_schedule "
     "pipeline_model_parallel_layout"},
    {"instances-sharding", true, instances_need_sharding, "num_distributed_optimizer_instances=2",
     "An instance is a group of data-parallel ranks that share one sharded copy of the optimizer states.",
     "num_distributed_optimizer_instances use_megatron_fsdp"},
    {"instances-ranks", true, instances_divisible,
     "use_distributed_optimizer=true; num_distributed_optimizer_instances=3",
     "Instances are groups of equally many data-parallel replicas.",
     "world_size expert_model_parallel_size num_experts"},
    {"bf16-gradients", true, bf16_gradients, "grad_reduce_in_bf16=true",
     "As in Megatron, gradients are reduced in bf16 only for bf16 parameters.", "params_dtype"},
    {"bucket-number", true, two_bucket_sizes, "ddp_num_buckets=4; ddp_bucket_size=1000",
     "The number of buckets determines their size.", "ddp_bucket_size"},
};

}  // namespace

std::span<const Rule> sharding_rules() { return kSharding; }

}  // namespace colonnade::rules
