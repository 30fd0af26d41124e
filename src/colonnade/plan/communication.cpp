// Counts the bytes of collectives and transfers.
#include "colonnade/plan/communication.h"

#include "colonnade/plan/buckets.h"
#include "colonnade/plan/memory.h"
#include "colonnade/plan/mesh.h"
#include "colonnade/plan/recompute.h"

namespace colonnade::plan {
namespace {

/// Bytes sent per rank by an all-gather or reduce-scatter of `bytes` over `ranks`.
double ring(double bytes, int ranks) { return bytes * (ranks - 1) / ranks; }

/// Bytes of one activation between layers.
double activation_bytes(const config::Run& run) {
  const double element = run.model.params_dtype == config::ParamsDtype::kFloat32 ? 4 : 2;
  const double rows = static_cast<double>(run.training.micro_batch_size * run.training.seq_length) /
                      run.parallel.context_parallel_size;
  return rows * static_cast<double>(run.model.hidden_size) * element;
}

/// Of one micro-batch. A layer opens and closes two parallel stretches, the embedding closes one, the
/// head opens one; cut by sequence, what a stretch reads is gathered again for its weight gradients. Both
/// stretches of a layer that is made again are opened and closed once more, and one of a dense MLP.
double tensor_bytes(const config::Run& run, const std::vector<StageBlocks>& stages, double activation, int tp,
                    bool by_sequence) {
  double passes = 0;
  for (const StageBlocks& stage : stages) {
    const double parts =
        4 * static_cast<double>(stage.num_layers) + (stage.embedding ? 1 : 0) + (stage.head ? 1 : 0);
    const double for_weights = 2 * static_cast<double>(stage.num_layers) + (stage.head ? 1 : 0);
    const LayerCounts again = layers_made_again(run, stage);
    const std::int64_t mlps = run.recompute.selects("mlp") ? layers_of(run.model, stage).dense : 0;
    passes += 2 * parts + (by_sequence ? for_weights : 0) +
              static_cast<double>(4 * (again.dense + again.experts) + 2 * mlps);
  }
  return ring(activation, tp) * passes;
}

/// Whole gradients and parameters, over `replicas`.
double data_bytes(const config::Run& run, const StageMemory& memory, int replicas, int microbatches) {
  const Sharding sharding = sharding_of(run.parallel);
  const auto values = static_cast<double>(memory.building);
  const double gradients = values / static_cast<double>(element_size(run.model)) * 4;
  const double scatters = sharding >= Sharding::kGradients ? microbatches : 1;
  const double gathers = sharding == Sharding::kParameters ? 2.0 * microbatches : 1;
  return ring(gradients, replicas) * scatters +
         ring(sharding == Sharding::kNone ? gradients : values * gathers, replicas);
}

}  // namespace

std::vector<StageTraffic> plan_traffic(const config::Run& run) {
  const Mesh mesh(run.parallel);
  const std::vector<StageMemory> memory = plan_memory(run);
  const Schedule schedule = schedule_of(run);
  const int tp = mesh.size(Axis::kTp);
  const bool by_sequence = run.parallel.sequence_parallel && tp > 1;
  const double activation = activation_bytes(run);
  std::vector<StageTraffic> traffic;
  for (std::size_t rank = 0; rank < memory.size(); ++rank) {
    StageTraffic t;
    t.tensor = tensor_bytes(run, memory[rank].stages, activation, tp, by_sequence) * schedule.microbatches;
    for (const Action& a : schedule.programs[rank])
      if (a.act == Do::kSendActivation || a.act == Do::kSendGradient)
        t.pipeline += by_sequence ? activation / tp : activation;
    t.data = data_bytes(run, memory[rank], mesh.size({Axis::kDp, Axis::kCp}), schedule.microbatches);
    traffic.push_back(t);
  }
  return traffic;
}

}  // namespace colonnade::plan
