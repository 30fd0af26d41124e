// Rules of what data ranks hold a part of.
#include "colonnade/config/parse.h"
#include "colonnade/plan/buckets.h"
#include "colonnade/plan/rules/table.h"

namespace colonnade::plan {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

constexpr const char* kStrategy = "--data-parallel-sharding-strategy";

/// Whether gradients, and maybe parameters, are whole only while a block uses them.
bool by_unit(const Run& r) { return sharding_of(r.parallel) >= Sharding::kGradients; }

Finding instead_optim(const char* rule, std::string got) {
  return {kStrategy, rule, std::move(got), {{"data_parallel_sharding_strategy", "optim"}}, ""};
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
  if (!p.use_megatron_fsdp || !p.use_distributed_optimizer || sharding_of(p) != Sharding::kNone)
    return std::nullopt;
  return instead_optim("no_shard must not meet --use-distributed-optimizer",
                       p.data_parallel_sharding_strategy);
}

Broken tied(const Run& r) {
  if (!by_unit(r) || r.model.untie_embeddings_and_output_weights) return std::nullopt;
  return instead_optim("gradients and weights are cut only where embedding and output layer are apart",
                       r.parallel.data_parallel_sharding_strategy + " and tied embeddings");
}

Broken split_backward(const Run& r) {
  const auto& p = r.parallel;
  if (!by_unit(r)) return std::nullopt;
  const bool splits = p.delay_wgrad_compute || p.pipeline_schedule == "zb-h1" ||
                      p.pipeline_schedule == "zb-v" || p.pipeline_schedule == "dualpipe-v";
  if (!splits) return std::nullopt;
  return instead_optim("gradients and weights are cut only where no weight gradient waits",
                       fmt::format("{} and {}", p.data_parallel_sharding_strategy,
                                   p.delay_wgrad_compute ? "--delay-wgrad-compute" : p.pipeline_schedule));
}

Broken shared_heads(const Run& r) {
  const std::int64_t groups = r.model.num_query_groups, tp = r.parallel.tensor_model_parallel_size;
  if (!by_unit(r) || groups < 1 || tp <= groups) return std::nullopt;
  return instead_optim("gradients and weights are cut only where no tensor ranks share key-value heads",
                       fmt::format("{} groups on {} tensor ranks", groups, tp));
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
    {"sharding-heads", true, shared_heads,
     "use_megatron_fsdp=true; untie_embeddings_and_output_weights=true; num_query_groups=1",
     "Rows that several tensor ranks hold are summed over whole gradients.",
     "use_megatron_fsdp tensor_model_parallel_size"},
};

}  // namespace

std::span<const Rule> sharding_rules() { return kSharding; }

}  // namespace colonnade::plan
