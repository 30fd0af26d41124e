// Counts the bytes of collectives and transfers.
#include "colonnade/plan/communication.h"

#include "colonnade/plan/memory.h"
#include "colonnade/plan/mesh.h"

namespace colonnade::plan {
namespace {

/// Bytes sent per rank by an all-gather or reduce-scatter of `bytes` over `ranks`.
double ring(double bytes, int ranks) { return bytes * (ranks - 1) / ranks; }

}  // namespace

std::vector<StageTraffic> plan_traffic(const config::Run& run) {
  const Mesh mesh(run.parallel);
  const std::vector<StageMemory> memory = plan_memory(run);
  const Schedule schedule = schedule_of(run);
  const int tp = mesh.size(Axis::kTp);
  const bool by_sequence = run.parallel.sequence_parallel && tp > 1;
  const double element = run.model.params_dtype == config::ParamsDtype::kFloat32 ? 4 : 2;
  const double rows = static_cast<double>(run.training.micro_batch_size * run.training.seq_length) /
                      run.parallel.context_parallel_size;
  const double activation = rows * static_cast<double>(run.model.hidden_size) * element;
  std::vector<StageTraffic> traffic;
  for (std::size_t rank = 0; rank < memory.size(); ++rank) {
    StageTraffic t;
    for (const StageBlocks& stage : memory[rank].stages) {
      // A layer opens and closes two parallel stretches, the embedding closes one, the head opens one.
      const double parts =
          4 * static_cast<double>(stage.num_layers) + (stage.embedding ? 1 : 0) + (stage.head ? 1 : 0);
      const double again = 2 * static_cast<double>(stage.num_layers) + (stage.head ? 1 : 0);
      t.tensor += ring(activation, tp) * (2 * parts + (by_sequence ? again : 0)) * schedule.microbatches;
    }
    for (const Action& a : schedule.programs[rank]) {
      if (a.act == Do::kSendActivation || a.act == Do::kSendGradient)
        t.pipeline += by_sequence ? activation / tp : activation;
    }
    const int replicas = mesh.size({Axis::kDp, Axis::kCp});
    const auto gradients = static_cast<double>(memory[rank].gradients);
    t.data = ring(gradients, replicas) + ring(run.parallel.use_distributed_optimizer
                                                  ? static_cast<double>(memory[rank].parameters)
                                                  : gradients,
                                              replicas);
    traffic.push_back(t);
  }
  return traffic;
}

}  // namespace colonnade::plan
