// See forward_backward_time.h.
#include "colonnade/cost/forward_backward_time.h"

#include <algorithm>

#include "colonnade/cost/activations.h"
#include "colonnade/layout/mesh.h"
#include "colonnade/layout/stages.h"
#include "colonnade/rules/rules.h"

namespace colonnade::cost {
namespace {

/// Seconds of one hidden state per token from a stage to the next.
double transfer_seconds(const ModelCost& model, const Hardware& hardware, const layout::Mesh& mesh) {
  if (model.run().parallel.pipeline_model_parallel_size < 2) return 0;
  // The slowest link decides.
  const bool intra_node = mesh.peers(0, {layout::Axis::kPp}).back() < hardware.devices_per_node;
  const Link& link = intra_node ? hardware.intra_node : hardware.inter_node;
  return static_cast<double>(message_bytes(model, 1)) / (link.bandwidth * link.share) + link.latency;
}

/// Time of all micro-batches on the busiest rank, without the communication that pairs hide.
PassTime busiest_rank(const std::vector<StageTime>& stages, const schedule::Placement& placement,
                      const schedule::PipelineTimes& pipeline, int microbatches) {
  PassTime most;
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    PassTime sum;
    for (int chunk = 0; chunk < placement.chunks(); ++chunk) {
      const StageTime& t = stages[static_cast<std::size_t>(placement.stage(rank, chunk))];
      sum.add(t.forward, microbatches).add(t.backward, microbatches);
      sum.dispatch -= pipeline.chunks[static_cast<std::size_t>(rank)][static_cast<std::size_t>(chunk)].hidden;
    }
    if (rank == 0 || sum.total() > most.total()) most = sum;
  }
  return most;
}

}  // namespace

ForwardBackwardTime forward_backward_time(const ModelCost& model, const Hardware& hardware,
                                          const Execution& execution, schedule::ScheduleCache& schedules) {
  const config::Run& run = model.run();
  const layout::Mesh mesh(run.parallel);
  const CommGroups groups(hardware, mesh);
  ForwardBackwardTime passes;
  std::vector<schedule::StageCost> costs;
  passes.blocks = model.stages();
  for (const layout::StageBlocks& stage : passes.blocks) {
    const StageTime time = stage_time(model, stage, hardware, execution, groups);
    passes.stages.push_back(time);
    costs.push_back({.forward = time.forward.total(),
                     .backward = time.backward.total(),
                     .weight = time.weight,
                     .message = static_cast<double>(stage.states_out),
                     .hidden_forward = time.hidden_forward,
                     .hidden_backward = time.hidden_backward});
  }
  const int chunks = static_cast<int>(costs.size()) / run.parallel.pipeline_model_parallel_size;
  const int microbatches = static_cast<int>(std::max<std::int64_t>(1, rules::num_microbatches(run)));
  passes.pipeline = schedule::step_times(schedules, run.parallel, chunks, microbatches, costs,
                                         transfer_seconds(model, hardware, mesh));
  passes.busiest = busiest_rank(passes.stages, schedule::placement_of(run.parallel, chunks), passes.pipeline,
                                microbatches);
  return passes;
}

}  // namespace colonnade::cost
