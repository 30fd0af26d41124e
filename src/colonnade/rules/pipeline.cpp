// Rules for pipeline and data parallelism.
#include <algorithm>
#include <iterator>

#include "colonnade/base/error.h"
#include "colonnade/config/batch_schedule.h"
#include "colonnade/layout/buckets.h"
#include "colonnade/layout/layout_string.h"
#include "colonnade/layout/stages.h"
#include "colonnade/rules/table.h"
#include "colonnade/schedule/kinds.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

/// Virtual stages per rank; 0 if the split is invalid.
int virtual_stages(const Run& r) {
  const int ranks = r.parallel.pipeline_model_parallel_size;
  try {
    return ranks < 1 ? 0 : layout::num_stages(r.model, r.parallel) / ranks;
  } catch (const ConfigError&) {
    return 0;
  }
}

/// Requested schedule; null if the name is unknown.
const schedule::ScheduleKind* kind_of(const Run& r, int stages) {
  try {
    return &schedule::schedule_kind(r.parallel, stages);
  } catch (const ConfigError&) {
    return nullptr;
  }
}

/// Virtual stages per rank in the proposed layout: the requested number, limited by the layers and by the
/// schedule.
int proposed_chunks(const Run& r) {
  const config::Parallel& p = r.parallel;
  const std::int64_t per_rank = r.model.total_layers() / p.pipeline_model_parallel_size;
  const std::int64_t requested = p.num_layers_per_virtual_pipeline_stage > 0
                                     ? per_rank / p.num_layers_per_virtual_pipeline_stage
                                     : p.num_virtual_stages_per_pipeline_rank;
  const std::int64_t limit = p.pipeline_model_parallel_size > 1 ? std::max<std::int64_t>(per_rank, 1) : 1;
  const auto chunks = static_cast<int>(std::clamp<std::int64_t>(requested, 1, limit));
  const schedule::ScheduleKind* kind = kind_of(r, chunks);
  if (kind == nullptr || schedule::supports(*kind, chunks)) return chunks;
  return kind->chunks == 0 ? 2 : kind->chunks;
}

/// Proposes a valid layout and removes the settings that conflict with it.
Finding propose_even_layout(const Run& r, const std::string& fault) {
  const config::Parallel& p = r.parallel;
  const std::string layout =
      layout::even_layout(r.model, std::int64_t{p.pipeline_model_parallel_size} * proposed_chunks(r));
  Finding found{fault, "", "", {{"pipeline_model_parallel_layout", layout}}, ""};
  std::vector<std::string> removed;
  const auto remove = [&](bool given, const char* key, const char* unset) {
    if (!given) return;
    found.edits.push_back({key, unset});
    removed.push_back(config::setting(key).flag);
  };
  const char* stages = "num_virtual_stages_per_pipeline_rank";
  const char* layers = "num_layers_per_virtual_pipeline_stage";
  const bool has_stages = p.num_virtual_stages_per_pipeline_rank > 0;
  const bool derived = has_stages && r.given.contains(layers) && !r.given.contains(stages);
  remove(has_stages && !derived, stages, "0");
  remove(p.num_layers_per_virtual_pipeline_stage > 0 || derived, layers, "0");
  remove(p.decoder_first_pipeline_num_layers > 0, "decoder_first_pipeline_num_layers", "0");
  remove(p.decoder_last_pipeline_num_layers > 0, "decoder_last_pipeline_num_layers", "0");
  remove(p.account_for_embedding_in_pipeline_split, "account_for_embedding_in_pipeline_split", "false");
  remove(p.account_for_loss_in_pipeline_split, "account_for_loss_in_pipeline_split", "false");
  found.fix = fmt::format("set --pipeline-model-parallel-layout \"{}\"{}{}", layout,
                          removed.empty() ? "" : " and remove ", fmt::join(removed, " and "));
  return found;
}

Broken split(const Run& r) {
  if (r.model.num_layers < 1 || r.parallel.pipeline_model_parallel_size < 1) return std::nullopt;
  try {
    layout::num_stages(r.model, r.parallel);
    return std::nullopt;
  } catch (const ConfigError& error) {
    return propose_even_layout(r, error.what());
  }
}

Broken virtual_stages_need_pipeline(const Run& r) {
  const auto& p = r.parallel;
  const bool requested =
      p.num_virtual_stages_per_pipeline_rank > 1 || p.num_layers_per_virtual_pipeline_stage > 0;
  if (!requested || p.pipeline_model_parallel_size > 1) return std::nullopt;
  return Finding{
      "--num-virtual-stages-per-pipeline-rank",
      "requires --pipeline-model-parallel-size above 1",
      fmt::format("{} virtual stages on {} pipeline rank", p.num_virtual_stages_per_pipeline_rank,
                  p.pipeline_model_parallel_size),
      {{"num_virtual_stages_per_pipeline_rank", "0"}, {"num_layers_per_virtual_pipeline_stage", "0"}},
      "remove the flag"};
}

Broken schedule_stages(const Run& r) {
  const int stages = virtual_stages(r);
  const schedule::ScheduleKind* kind = kind_of(r, stages);
  if (stages == 0 || kind == nullptr || schedule::supports(*kind, stages)) return std::nullopt;
  std::vector<Edit> edits{{"pipeline_schedule", "auto"}};
  return Finding{
      "--pipeline-schedule",
      "must match the virtual stages per rank: interleaved more than one, zb-v and dualpipe-v two, others "
      "one",
      fmt::format("{} with {}", kind->name, stages), std::move(edits), ""};
}

Broken delayed_wgrad(const Run& r) {
  const auto& p = r.parallel;
  const schedule::ScheduleKind* kind = kind_of(r, virtual_stages(r));
  if (!p.delay_wgrad_compute || kind == nullptr) return std::nullopt;
  const bool has_reader = p.pipeline_model_parallel_size > 1 || p.pairs_passes();
  if (has_reader && !kind->splits_backward) return std::nullopt;
  return Finding{
      "--delay-wgrad-compute",
      "requires --pipeline-model-parallel-size above 1 and a schedule that does not delay weight gradients "
      "itself",
      fmt::format("{} on {} pipeline rank{}", kind->name, p.pipeline_model_parallel_size,
                  p.pipeline_model_parallel_size == 1 ? "" : "s"),
      {{"delay_wgrad_compute", "false"}},
      "remove the flag"};
}

/// Megatron's conditions, except that it also rejects recomputed experts and overlapped shared experts.
Broken exchange_overlap(const Run& r) {
  const auto& p = r.parallel;
  if (!p.overlap_moe_expert_parallel_comm) return std::nullopt;
  if (p.expert_model_parallel_size <= 1)
    return Finding{"--overlap-moe-expert-parallel-comm",
                   "requires --expert-model-parallel-size above 1",
                   text(std::int64_t{p.expert_model_parallel_size}),
                   {{"overlap_moe_expert_parallel_comm", "false"}},
                   "remove the flag"};
  if (r.model.moe.num_experts == 0 || r.model.moe.token_dispatcher_type == config::TokenDispatcher::kAllToAll)
    return std::nullopt;
  return Finding{"--overlap-moe-expert-parallel-comm",
                 "requires --moe-token-dispatcher-type alltoall",
                 "allgather",
                 {{"moe_token_dispatcher_type", "alltoall"}},
                 ""};
}

Broken pair_schedule(const Run& r) {
  const schedule::ScheduleKind* kind = kind_of(r, virtual_stages(r));
  if (!r.parallel.pairs_passes() || kind == nullptr || kind->has_pairs) return std::nullopt;
  return Finding{"--overlap-moe-expert-parallel-comm",
                 "requires --pipeline-schedule 1f1b, interleaved or dualpipe-v",
                 std::string(kind->name),
                 {{"pipeline_schedule", kind->chunks == 2 ? "dualpipe-v" : "auto"}},
                 ""};
}

Broken pair_sharding(const Run& r) {
  if (!r.parallel.pairs_passes() || layout::sharding_of(r.parallel) < layout::Sharding::kParameters)
    return std::nullopt;
  return Finding{"--overlap-moe-expert-parallel-comm",
                 "is not supported with --data-parallel-sharding-strategy optim_grads_params",
                 "both",
                 {{"data_parallel_sharding_strategy", "optim_grads"}},
                 ""};
}

/// Whether groups of `group` can divide batches of `samples` in micro-steps of `step` samples.
bool divides(const Run& r, std::int64_t group, std::int64_t samples, std::int64_t step) {
  const std::int64_t ranks = r.parallel.pipeline_model_parallel_size, count = samples / step;
  if (count < 1 || samples % step != 0) return true;          // another rule reports it
  const bool is_hybrid = r.parallel.hybrid_context_parallel;  // runs whole groups of micro-batches
  const std::int64_t rest = count % group;
  return group >= ranks && (is_hybrid || (group <= count && (rest == 0 || rest >= ranks)));
}

/// The first number of micro-batches per training step that groups of `group` cannot divide; 0 if there is
/// none.
std::int64_t undivided_microbatches(const Run& r, std::int64_t group) {
  const std::int64_t step = samples_per_microbatch(r);
  if (step < 1) return 0;
  const config::BatchSchedule schedule = config::batch_schedule(r.training);
  const auto undivided = std::ranges::find_if(schedule.sizes(), [&](const config::BatchSchedule::Size& size) {
    return !divides(r, group, size.global_batch_size, step);
  });
  return undivided == schedule.sizes().end() ? 0 : undivided->global_batch_size / step;
}

Broken eval_group_size(const Run& r) {
  const std::int64_t ranks = r.parallel.pipeline_model_parallel_size;
  const std::int64_t given = r.parallel.microbatch_group_size_per_virtual_pipeline_stage;
  const std::int64_t group = given > 0 ? given : ranks;
  const schedule::ScheduleKind* kind = kind_of(r, virtual_stages(r));
  const config::Training& t = r.training;
  if (!config::has_eval_batch_size(t) || virtual_stages(r) <= 1 || kind == nullptr ||
      kind->name != "interleaved" || samples_per_microbatch(r) < 1 || undivided_microbatches(r, group) > 0)
    return std::nullopt;
  const std::int64_t step = config::eval_micro_batch_size(t) * r.parallel.data_parallel_size();
  const std::int64_t batch = config::eval_batch_size(t);
  if (divides(r, group, batch, step)) return std::nullopt;
  return Finding{
      "--eval-global-batch-size",
      "must give evaluation steps whole groups of micro-batches, or leave at least the pipeline size "
      "for the last group",
      fmt::format("{} micro-batches in groups of {} for {} pipeline ranks", batch / step, group, ranks),
      {{"eval_global_batch_size", text(round_up(batch, step * group))}},
      ""};
}

Broken group_size(const Run& r) {
  const std::int64_t ranks = r.parallel.pipeline_model_parallel_size;
  const std::int64_t given = r.parallel.microbatch_group_size_per_virtual_pipeline_stage;
  const std::int64_t group = given > 0 ? given : ranks;
  const schedule::ScheduleKind* kind = kind_of(r, virtual_stages(r));
  if (virtual_stages(r) <= 1 || kind == nullptr || kind->name != "interleaved") return std::nullopt;
  const std::int64_t count = undivided_microbatches(r, group);
  if (count < 1) return std::nullopt;
  const std::int64_t step = samples_per_microbatch(r);
  std::vector<Edit> edits{{"microbatch_group_size_per_virtual_pipeline_stage", "0"}};
  if (has_batch_schedule(r))
    std::ranges::move(scheduled_multiples(r, step * ranks), std::back_inserter(edits));
  else
    edits.push_back({"global_batch_size", text(step * round_up(count, ranks))});
  return Finding{
      "--microbatch-group-size-per-virtual-pipeline-stage",
      "must be between the pipeline size and the number of micro-batches, and leave at least the pipeline "
      "size for the last group",
      fmt::format("{} for {} pipeline ranks and {} micro-batches", group, ranks, count), std::move(edits),
      has_batch_schedule(r) ? fmt::format("use batch sizes that are multiples of {}", step * ranks) : ""};
}

Broken param_gather(const Run& r) {
  const auto& p = r.parallel;
  const bool sharded = layout::sharding_of(p) >= layout::Sharding::kOptimizer;
  if (!p.overlap_param_gather || (sharded && p.overlap_grad_reduce)) return std::nullopt;
  std::vector<Edit> edits{{"overlap_grad_reduce", "true"}};
  if (!sharded && p.use_megatron_fsdp) edits.push_back({"data_parallel_sharding_strategy", "optim"});
  if (!sharded && !p.use_megatron_fsdp) edits.push_back({"use_distributed_optimizer", "true"});
  return Finding{"--overlap-param-gather",
                 "requires a sharded optimizer (--use-distributed-optimizer or --use-megatron-fsdp) and "
                 "--overlap-grad-reduce",
                 fmt::format("{} and --overlap-grad-reduce {}",
                             sharded ? "a sharded optimizer" : "no sharding", p.overlap_grad_reduce),
                 std::move(edits), ""};
}

Broken timeout(const Run& r) {
  if (r.training.distributed_timeout_minutes > 0) return std::nullopt;
  return Finding{"--distributed-timeout-minutes",
                 "must be above 0",
                 text(r.training.distributed_timeout_minutes),
                 {{"distributed_timeout_minutes", "10"}},
                 ""};
}

constexpr Rule kPipeline[] = {
    {"pipeline-split", false, split, "num_layers=7",
     "Every layer belongs to exactly one stage, the embedding to the first and the loss to the last.",
     "num_layers encoder_num_layers mtp_num_layers pipeline_model_parallel_size pipeline_schedule "
     "num_virtual_stages_per_pipeline_rank num_layers_per_virtual_pipeline_stage "
     "decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers "
     "account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split"},
    {"virtual-stages", false, virtual_stages_need_pipeline,
     "pipeline_model_parallel_size=1; num_virtual_stages_per_pipeline_rank=2",
     "Virtual stages interleave layers among several pipeline ranks.", "pipeline_model_parallel_size"},
    {"pipeline-schedule", true, schedule_stages, "pipeline_schedule=interleaved",
     "Each schedule is defined for a certain number of virtual stages per rank.",
     "num_virtual_stages_per_pipeline_rank pipeline_model_parallel_size"},
    {"delay-wgrad", true, delayed_wgrad, "delay_wgrad_compute=true; pipeline_schedule=zb-h1",
     "The delay lets input gradients reach the previous pipeline rank sooner; zero-bubble schedules already "
     "order weight gradients.",
     "pipeline_schedule pipeline_model_parallel_size overlap_moe_expert_parallel_comm"},
    {"experts-overlap", true, exchange_overlap,
     "num_experts=8; add_bias_linear=false; sequence_parallel=true; overlap_moe_expert_parallel_comm=true",
     "The all-to-all between the ranks of a layer's experts is what overlaps.",
     "expert_model_parallel_size moe_token_dispatcher_type num_experts overlap_moe_expert_parallel_comm"},
    {"pairs-schedule", true, pair_schedule,
     "num_experts=8; add_bias_linear=false; sequence_parallel=true; expert_model_parallel_size=2; "
     "moe_token_dispatcher_type=alltoall; overlap_moe_expert_parallel_comm=true; pipeline_schedule=gpipe",
     "These schedules run a forward and a backward pass of independent micro-batches next to each other.",
     "overlap_moe_expert_parallel_comm num_virtual_stages_per_pipeline_rank pipeline_model_parallel_size"},
    {"pairs-sharding", true, pair_sharding,
     "num_experts=8; add_bias_linear=false; sequence_parallel=true; expert_model_parallel_size=2; "
     "moe_token_dispatcher_type=alltoall; overlap_moe_expert_parallel_comm=true; use_megatron_fsdp=true",
     "A forward pass would free parameters that the backward pass of another micro-batch still reads.",
     "use_megatron_fsdp overlap_moe_expert_parallel_comm"},
    {"microbatch-group", true, group_size,
     "num_virtual_stages_per_pipeline_rank=2; microbatch_group_size_per_virtual_pipeline_stage=3",
     "A virtual stage runs a group of micro-batches before the next one begins; a group shorter than the "
     "pipeline would deadlock.",
     "micro_batch_size pipeline_model_parallel_size num_virtual_stages_per_pipeline_rank"},
    {"eval-microbatch-group", true, eval_group_size,
     "num_virtual_stages_per_pipeline_rank=2; eval_global_batch_size=4",
     "Evaluations run the virtual stages in the same groups as training steps.",
     "micro_batch_size global_batch_size pipeline_model_parallel_size num_virtual_stages_per_pipeline_rank"},
    {"param-gather", true, param_gather, "overlap_param_gather=true",
     "Only sharded parameters are all-gathered, in the buckets of --overlap-grad-reduce."},
    {"timeout", false, timeout, "distributed_timeout_minutes=0",
     "A timeout of 0 would fail the first collective."},
};

}  // namespace

std::span<const Rule> pipeline_rules() { return kPipeline; }

}  // namespace colonnade::rules
