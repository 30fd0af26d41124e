// See summary.h.
#include "colonnade/record/summary.h"

#include <fmt/format.h>

#include "colonnade/base/log.h"
#include "colonnade/config/batch_schedule.h"
#include "colonnade/cost/describe.h"
#include "colonnade/cost/flops.h"
#include "colonnade/layout/context_groups.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/layout/stages.h"
#include "colonnade/models/hf/export_class.h"

namespace colonnade::record {
namespace {

using layout::Axis;

std::string owned_blocks(const config::Run& run, int pp_rank) {
  std::vector<std::string> parts;
  for (const layout::StageBlocks& stage : layout::stages_of_rank(run.model, run.parallel, pp_rank))
    parts.push_back(cost::blocks_text(stage, run.model));
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::int64_t all_parameters(const config::Run& run) {
  std::int64_t total = 0;
  for (const auto& spec : layout::model_params(run.model, run.parallel)) total += spec.numel();
  return total;
}

}  // namespace

void log_summary(const RunSummary& summary, const RunFolder& folder) {
  log::info("{}; run folder {}", summary.title, folder.root.string());
  for (const auto& [name, text] : summary.facts) log::info("  {}: {}", name, text);
  for (const RankSummary& r : summary.ranks)
    if (r.rank < 16)
      log::info("  rank {} ({}): {} parameters, {}", r.rank, r.coordinates, r.parameters, r.blocks);
}

std::string memory_line(const std::vector<RankSummary>& ranks) {
  std::vector<MemoryPeaks> measured, planned;
  for (const RankSummary& r : ranks) {
    measured.push_back(r.measured);
    planned.push_back(r.planned);
  }
  return memory_line(measured, planned);
}

RunSummary summarize(job::Job& job) {
  const config::Run& run = job.run;
  const layout::Mesh& mesh = job.ranks.mesh();
  std::int64_t mine = 0;
  for (const tensor::Parameter* parameter : job.parameters()) mine += parameter->value.numel();

  RunSummary summary;
  const std::int64_t total = all_parameters(run);
  summary.title = fmt::format("{}, {} parameters on {} rank{}", run.model_type,
                              cost::count_text(static_cast<double>(total)), mesh.world_size(),
                              mesh.world_size() == 1 ? "" : "s");
  const int cp = mesh.size(Axis::kCp);
  const std::string context = cp > 1 ? fmt::format("context {} x ", cp) : "";
  const int instances = run.parallel.num_distributed_optimizer_instances;
  const std::string optimizer = !job.buffers().distributed(layout::ParamGroup::kDense) ? ""
                                : instances > 1 ? fmt::format(", {} distributed optimizers", instances)
                                                : ", distributed optimizer";
  const config::BatchSchedule batches = config::batch_schedule(run.training);
  summary.facts = {
      {"layout", fmt::format("tensor {} x {}pipeline {} x data {}{}{}", mesh.size(Axis::kTp), context,
                             mesh.size(Axis::kPp), job.data_ranks(),
                             run.parallel.sequence_parallel ? ", sequence parallel" : "", optimizer)},
      {"batch", batches.is_constant()
                    ? fmt::format("global {} = micro {} x data {} x accumulation {}", batches.final_size(),
                                  run.training.micro_batch_size, job.data_ranks(), job.num_microbatches())
                    : fmt::format("global {}; micro {} x data {}", batches.text(),
                                  run.training.micro_batch_size, job.data_ranks())},
      {"sequence length", cost::length_text(run)},
      {"TFLOP per step",
       fmt::format("{:.4g}", cost::training_flops(run.model, cost::sample_length(run), batches.final_size(),
                                                  run.parallel.tensor_model_parallel_size) /
                                 1e12)},
      {"exports to", models::hf::export_text(run.model)}};
  if (run.parallel.hybrid_context_parallel)
    summary.facts.emplace_back("groups by length", layout::hybrid_context_text(run));
  if (run.parallel.deterministic_mode)
    summary.facts.emplace_back("deterministic mode", cost::determinism_text(run));
  const auto counts = job.ranks.world().all_gather_text(std::to_string(mine), "parameters of every rank");
  const auto memory = cost::plan_memory(run);
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const int stage = mesh.coord(rank, Axis::kPp);
    summary.ranks.push_back(
        {.rank = rank,
         .coordinates = fmt::format("tp {}, {}pp {}, dp {}", mesh.coord(rank, Axis::kTp),
                                    cp > 1 ? fmt::format("cp {}, ", mesh.coord(rank, Axis::kCp)) : "", stage,
                                    mesh.coord(rank, Axis::kDp)),
         .blocks = owned_blocks(run, stage),
         .parameters = std::stoll(counts[static_cast<std::size_t>(rank)]),
         .planned = planned_peaks(memory[static_cast<std::size_t>(stage)])});
  }
  const schedule::Schedule& schedule = job.executor().schedule();
  if (schedule.ranks > 1)
    summary.pipeline_svg = schedule::render_svg(schedule::simulate(schedule, cost::kRelativeCosts), schedule);
  return summary;
}

void warn_about_slow_attention(const config::Model& m, bool cuda) {
  const bool sinks = m.softmax_type != config::SoftmaxType::kVanilla && cuda;
  const bool relative = m.position_embedding == config::PositionEmbedding::kRelative;
  if (m.attention_dropout == 0 && m.attn_logit_softcapping == 0 && !sinks && !relative) return;
  const char* reason =
      relative ? "--position-embedding-type relative: it writes all scores to memory; use another one"
      : m.attention_dropout > 0
          ? "--attention-dropout: it writes all scores to memory; set --attention-dropout 0"
      : m.attn_logit_softcapping > 0
          ? "--attn-logit-softcapping: it writes all scores to memory; use a model without it"
          : "--softmax-type: it writes all scores to memory; use a model without sinks";
  log::warning("{} for the fast kernels", reason);
}

}  // namespace colonnade::record
