// See memory_check.h.
#include "colonnade/job/memory_check.h"

#include <algorithm>
#include <string>

#include "colonnade/base/error.h"
#include "colonnade/cost/describe.h"
#include "colonnade/cost/memory.h"
#include "colonnade/layout/layer_kind.h"
#include "colonnade/layout/params/gpt.h"

namespace colonnade::job {
namespace {

double num_elements(const config::Run& run, const layout::BlockId& block) {
  double sum = 0;
  layout::for_each_param(run.model, run.parallel, block, [&sum](const layout::ParamSpec& spec) {
    double elements = 1;
    for (const std::int64_t size : spec.shape) elements *= static_cast<double>(size);
    sum += elements;
  });
  return sum;
}

/// Bytes of one full copy of the model. In floating point, because given sizes may overflow any integer.
double weight_bytes(const config::Run& run) {
  const config::Model& m = run.model;
  const std::vector<layout::LayerKind> kinds = layout::layer_kinds(m);
  double all = 0;
  for (const bool is_moe : {false, true}) {
    const auto first = std::ranges::find(kinds, is_moe, &layout::LayerKind::is_moe);
    if (first == kinds.end()) continue;
    all += num_elements(run, {layout::BlockKind::kLayer, std::distance(kinds.begin(), first)}) *
           static_cast<double>(std::ranges::count(kinds, is_moe, &layout::LayerKind::is_moe));
  }
  for (const layout::BlockId& block : layout::model_blocks(m))
    if (block.kind != layout::BlockKind::kLayer) all += num_elements(run, block);
  return all * static_cast<double>(config::bytes(config::dtypes_of(run).parameter));
}

/// Lower bound of one micro-batch's activations: the input of a layer and, with attention dropout, without
/// context parallelism and documents, its attention scores.
double activation_bytes(const config::Run& run) {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double s = real(run.training.seq_length);
  double row = real(run.model.hidden_size);
  const bool full_sequence = run.parallel.context_parallel_size == 1 &&
                             !run.parallel.hybrid_context_parallel && !run.data.attends_within_documents();
  if (run.model.attention_dropout > 0 && full_sequence && !run.training.skip_train)
    row += 2 * s * real(run.model.num_attention_heads);
  return real(run.training.micro_batch_size) * s * row *
         real(config::bytes(config::dtypes_of(run).activation));
}

/// Peak bytes per rank, averaged over all ranks.
double planned_bytes(const config::Run& run) {
  const auto stages = cost::plan_memory(run);
  double sum = 0;
  for (const cost::StageMemory& stage : stages) {
    sum += static_cast<double>(cost::max_peak_bytes(run, {stage}));
  }
  return sum / static_cast<double>(stages.size());
}

}  // namespace

void require_memory(const config::Run& run, rules::Purpose purpose, int local_ranks, std::int64_t memory) {
  if (memory == 0) return;
  const double ranks = run.parallel.world_size,
               replicas = run.parallel.data_parallel_size() * run.parallel.context_parallel_size;
  const auto on_machine = [&](double of_all_replicas) {
    return of_all_replicas * replicas / ranks * local_ranks;
  };
  const auto require = [&](double bytes, const char* what, const char* fix) {
    if (bytes <= static_cast<double>(memory)) return;
    throw ConfigError(fmt::format(
        "memory: the ranks of a machine must fit its memory; got {} of {} for {} {}, and {} of memory; {}, "
        "or use more machines (`colonnade plan` shows the memory by use)",
        cost::bytes_text(bytes), what, local_ranks, local_ranks == 1 ? "rank" : "ranks",
        cost::bytes_text(static_cast<double>(memory)), fix));
  };
  // These two come first: they hold for any sizes, and settings that pass them can be planned in integers.
  require(on_machine(weight_bytes(run)), "weights", "lower --hidden-size or --num-layers");
  if (purpose == rules::Purpose::kModel) return;
  require(on_machine(activation_bytes(run)), "activations", "lower --micro-batch-size or --seq-length");
  require(planned_bytes(run) * local_ranks, "weights, optimizer states and activations",
          "lower --micro-batch-size, --seq-length or the model's sizes");
}

}  // namespace colonnade::job
