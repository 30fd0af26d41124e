// Rules of the pipeline and of data parallelism.
#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/layout/buckets.h"
#include "colonnade/layout/layout_string.h"
#include "colonnade/layout/stages.h"
#include "colonnade/rules/table.h"
#include "colonnade/schedule/kinds.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

/// Virtual stages of a rank; 0 when the split is impossible.
int virtual_stages(const Run& r) {
  const int ranks = r.parallel.pipeline_model_parallel_size;
  return ranks < 1 ? 0 : static_cast<int>(stages_if_sound(r).size()) / ranks;
}

/// The schedule that is asked for; null where its name is none.
const schedule::ScheduleKind* kind_of(const Run& r, int stages) {
  try {
    return &schedule::schedule_kind(r.parallel, stages);
  } catch (const ConfigError&) {
    return nullptr;
  }
}

/// Virtual stages of a rank in a layout that is proposed: as many as are asked for, where there are layers
/// for them and the schedule runs so many.
int proposed_chunks(const Run& r) {
  const config::Parallel& p = r.parallel;
  const std::int64_t per_rank = r.model.all_layers() / p.pipeline_model_parallel_size;
  const std::int64_t asked = p.num_layers_per_virtual_pipeline_stage > 0
                                 ? per_rank / p.num_layers_per_virtual_pipeline_stage
                                 : p.num_virtual_stages_per_pipeline_rank;
  const std::int64_t room = p.pipeline_model_parallel_size > 1 ? std::max<std::int64_t>(per_rank, 1) : 1;
  const auto chunks = static_cast<int>(std::clamp<std::int64_t>(asked, 1, room));
  const schedule::ScheduleKind* kind = kind_of(r, chunks);
  if (kind == nullptr || schedule::runs(*kind, chunks)) return chunks;
  return kind->chunks == 0 ? 2 : kind->chunks;
}

/// A layout that passes, and what cannot stand beside it.
Finding with_even_layout(const Run& r, const std::string& fault) {
  const config::Parallel& p = r.parallel;
  const std::string layout =
      layout::even_layout(r.model, std::int64_t{p.pipeline_model_parallel_size} * proposed_chunks(r));
  Finding found{fault, "", "", {{"pipeline_model_parallel_layout", layout}}, ""};
  std::vector<std::string> beside;
  const auto leave_out = [&](bool given, const char* key, const char* unset) {
    if (!given) return;
    found.edits.push_back({key, unset});
    beside.push_back(config::setting(key).flag);
  };
  const char* stages = "num_virtual_stages_per_pipeline_rank";
  const char* layers = "num_layers_per_virtual_pipeline_stage";
  const bool number = p.num_virtual_stages_per_pipeline_rank > 0;
  const bool derived = number && r.given.contains(layers) && !r.given.contains(stages);  // from the layers
  leave_out(number && !derived, stages, "0");
  leave_out(p.num_layers_per_virtual_pipeline_stage > 0 || derived, layers, "0");
  leave_out(p.decoder_first_pipeline_num_layers > 0, "decoder_first_pipeline_num_layers", "0");
  leave_out(p.decoder_last_pipeline_num_layers > 0, "decoder_last_pipeline_num_layers", "0");
  leave_out(p.account_for_embedding_in_pipeline_split, "account_for_embedding_in_pipeline_split", "false");
  leave_out(p.account_for_loss_in_pipeline_split, "account_for_loss_in_pipeline_split", "false");
  found.fix = fmt::format("set --pipeline-model-parallel-layout \"{}\"{}{}", layout,
                          beside.empty() ? "" : " and leave out ", fmt::join(beside, " and "));
  return found;
}

Broken split(const Run& r) {
  if (r.model.num_layers < 1 || r.parallel.pipeline_model_parallel_size < 1) return std::nullopt;
  try {
    layout::split_stages(r.model, r.parallel);
    return std::nullopt;
  } catch (const ConfigError& error) {
    return with_even_layout(r, error.what());
  }
}

Broken virtual_needs_pipeline(const Run& r) {
  const auto& p = r.parallel;
  const bool asked =
      p.num_virtual_stages_per_pipeline_rank > 1 || p.num_layers_per_virtual_pipeline_stage > 0;
  if (!asked || p.pipeline_model_parallel_size > 1) return std::nullopt;
  return Finding{
      "--num-virtual-stages-per-pipeline-rank",
      "needs --pipeline-model-parallel-size above 1",
      fmt::format("{} virtual stages on {} pipeline rank", p.num_virtual_stages_per_pipeline_rank,
                  p.pipeline_model_parallel_size),
      {{"num_virtual_stages_per_pipeline_rank", "0"}, {"num_layers_per_virtual_pipeline_stage", "0"}},
      "leave it out"};
}

Broken schedule_name(const Run& r) {
  const int stages = virtual_stages(r);
  const schedule::ScheduleKind* kind = kind_of(r, stages);
  if (stages == 0 || kind == nullptr || schedule::runs(*kind, stages)) return std::nullopt;
  std::vector<Edit> edits{{"pipeline_schedule", "auto"}};
  return Finding{
      "--pipeline-schedule",
      "interleaved needs more than one virtual stage a rank, zb-v and dualpipe-v two, the others one",
      fmt::format("{} with {}", kind->name, stages), std::move(edits), ""};
}

Broken delayed_weights(const Run& r) {
  const auto& p = r.parallel;
  const schedule::ScheduleKind* kind = kind_of(r, virtual_stages(r));
  if (!p.delay_wgrad_compute || kind == nullptr) return std::nullopt;
  if (p.pipeline_model_parallel_size > 1 && !kind->splits_backward) return std::nullopt;
  return Finding{"--delay-wgrad-compute",
                 "needs --pipeline-model-parallel-size above 1 and a schedule that does not delay weight "
                 "gradients by itself",
                 fmt::format("{} on {} pipeline rank{}", kind->name, p.pipeline_model_parallel_size,
                             p.pipeline_model_parallel_size == 1 ? "" : "s"),
                 {{"delay_wgrad_compute", "false"}},
                 "leave it out"};
}

Broken group_size(const Run& r) {
  const bool by_length = r.parallel.hybrid_context_parallel;  // then passes come in whole groups
  const std::int64_t ranks = r.parallel.pipeline_model_parallel_size, count = num_microbatches(r);
  const std::int64_t given = r.parallel.microbatch_group_size_per_virtual_pipeline_stage;
  const std::int64_t group = given > 0 ? given : ranks;
  const schedule::ScheduleKind* kind = kind_of(r, virtual_stages(r));
  if (virtual_stages(r) <= 1 || count < 1 || kind == nullptr || kind->name != "interleaved")
    return std::nullopt;
  const std::int64_t rest = count % group;
  if (group >= ranks && (by_length || (group <= count && (rest == 0 || rest >= ranks)))) return std::nullopt;
  const std::int64_t per_microbatch = r.training.global_batch_size / count;
  return Finding{"--microbatch-group-size-per-virtual-pipeline-stage",
                 "must lie between the pipeline size and the number of micro-batches, and what is left over "
                 "must be none or at least the pipeline size",
                 fmt::format("{} for {} pipeline ranks and {} micro-batches", group, ranks, count),
                 {{"microbatch_group_size_per_virtual_pipeline_stage", "0"},
                  {"global_batch_size", text(per_microbatch * round_up(count, ranks))}},
                 ""};
}

Broken param_gather(const Run& r) {
  const auto& p = r.parallel;
  const bool sharded = layout::sharding_of(p) >= layout::Sharding::kOptimizer;
  if (!p.overlap_param_gather || (sharded && p.overlap_grad_reduce)) return std::nullopt;
  std::vector<Edit> edits{{"overlap_grad_reduce", "true"}};
  if (!sharded && p.use_megatron_fsdp) edits.push_back({"data_parallel_sharding_strategy", "optim"});
  if (!sharded && !p.use_megatron_fsdp) edits.push_back({"use_distributed_optimizer", "true"});
  return Finding{"--overlap-param-gather",
                 "needs --use-distributed-optimizer or a strategy of --use-megatron-fsdp that shards, and "
                 "--overlap-grad-reduce",
                 fmt::format("{} and {}", sharded ? "sharded" : "nothing sharded", p.overlap_grad_reduce),
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
     "Every layer belongs to one stage, none is left out, and the embedding is first and the loss last.",
     "num_layers encoder_num_layers mtp_num_layers pipeline_model_parallel_size pipeline_schedule "
     "num_virtual_stages_per_pipeline_rank num_layers_per_virtual_pipeline_stage "
     "decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers "
     "account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split"},
    {"virtual-stages", false, virtual_needs_pipeline,
     "pipeline_model_parallel_size=1; num_virtual_stages_per_pipeline_rank=2",
     "Virtual stages are turns that pipeline ranks take.", "pipeline_model_parallel_size"},
    {"pipeline-schedule", true, schedule_name, "pipeline_schedule=interleaved",
     "A schedule is an order for a certain number of stages of a rank.",
     "num_virtual_stages_per_pipeline_rank pipeline_model_parallel_size"},
    {"delay-wgrad", true, delayed_weights, "delay_wgrad_compute=true; pipeline_schedule=zb-h1",
     "Weight gradients wait so that another rank gets its gradients sooner, and zero-bubble schedules say "
     "themselves when.",
     "pipeline_schedule pipeline_model_parallel_size"},
    {"microbatch-group", true, group_size,
     "num_virtual_stages_per_pipeline_rank=2; microbatch_group_size_per_virtual_pipeline_stage=3",
     "A group of micro-batches passes a virtual stage before the next stage begins, and a shorter one would arrive before it is awaited.",
     "micro_batch_size pipeline_model_parallel_size num_virtual_stages_per_pipeline_rank"},
    {"param-gather", true, param_gather, "overlap_param_gather=true",
     "Only the distributed optimizer gathers weights, and it hides that behind the same buckets."},
    {"timeout", false, timeout, "distributed_timeout_minutes=0",
     "A group that waits no time is lost at its first message."},
};

}  // namespace

std::vector<layout::StageBlocks> stages_if_sound(const Run& run) {
  try {
    return layout::split_stages(run.model, run.parallel);
  } catch (const ConfigError&) {
    return {};
  }
}

std::span<const Rule> pipeline_rules() { return kPipeline; }

}  // namespace colonnade::rules
