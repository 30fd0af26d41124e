// Bytes of collectives and pipeline messages.
#include "colonnade/cost/communication.h"

#include <algorithm>
#include <utility>

#include "colonnade/cost/activations.h"
#include "colonnade/cost/memory.h"
#include "colonnade/cost/stage_compute.h"
#include "colonnade/layout/buckets.h"
#include "colonnade/layout/context_groups.h"
#include "colonnade/layout/context_parallel.h"
#include "colonnade/layout/mesh.h"
#include "colonnade/layout/param.h"

namespace colonnade::cost {
namespace {

using layout::BlockKind;

/// Bytes sent per rank by an all-gather or reduce-scatter of `bytes` over `ranks`.
double ring_bytes(double bytes, int ranks) { return bytes * (ranks - 1) / ranks; }

/// Bytes that the most loaded of `ranks` sends in an all-to-all of rows and back, relative to balanced
/// routing. It sends the same rows but returns more.
double imbalance_factor(double fullest, int ranks) {
  return ranks == 1 ? 1 : (ranks + fullest * (ranks - 2)) / (2.0 * (ranks - 1));
}

/// Bytes that one rank sends in one pass of a micro-batch, by group of its blocks.
struct PassTraffic {
  double tensor = 0, context = 0, dispatch = 0;
  void add(const PassTraffic& other, double times) {
    tensor += times * other.tensor;
    context += times * other.context;
    dispatch += times * other.dispatch;
  }
};
struct BlockTraffic {
  PassTraffic forward, backward;
};

/// Sizes of the groups in which blocks communicate.
struct BlockGroups {
  explicit BlockGroups(const config::Run& run)
      : tensor(run.parallel.tensor_model_parallel_size),
        dispatch(layout::size_of(run.parallel, layout::kDispatchAxes)),
        sequence_parallel(run.parallel.sequence_parallel && tensor > 1) {}
  int tensor, dispatch;
  bool sequence_parallel;
};

/// A column-parallel linear gathers its input and reduce-scatters the gradient, with sequence parallelism,
/// for which it gathers the input again for the weight gradient; otherwise it all-reduces the gradient. A
/// row-parallel one does the reverse without a second gather.
void add_matmul(const Matmul& p, const BlockGroups& groups, BlockTraffic& traffic) {
  if (p.sharding == LinearSharding::kReplicated) return;
  const double once = ring_bytes(p.comm_bytes, groups.tensor);
  if (p.sharding == LinearSharding::kColumns) {
    traffic.forward.tensor += groups.sequence_parallel ? once : 0;
    traffic.backward.tensor += 2 * once;
  } else {
    traffic.forward.tensor += groups.sequence_parallel ? once : 2 * once;
    traffic.backward.tensor += groups.sequence_parallel ? once : 0;
  }
}

void add_collective(const Collective& c, const layout::LayerContextParallel& context,
                    const BlockGroups& groups, BlockTraffic& traffic) {
  const auto add = [&](double PassTraffic::*group, double once) {
    traffic.forward.*group += c.forward * once;
    traffic.backward.*group += c.backward * once;
  };
  switch (c.group) {
    case GroupKind::kTensor:
      return add(&PassTraffic::tensor, ring_bytes(c.bytes, groups.tensor));
    case GroupKind::kDispatch:
      return add(&PassTraffic::dispatch,
                 ring_bytes(c.bytes, groups.dispatch) * imbalance_factor(c.imbalance, groups.dispatch));
    case GroupKind::kContextAllToAll:
      return add(&PassTraffic::context, ring_bytes(c.bytes, context.heads));
    case GroupKind::kContextRing:
      return add(&PassTraffic::context, ring_bytes(c.bytes, context.ring));
  }
}

/// Keys and values go around the ring in both passes, their gradients one hop more.
BlockTraffic traffic_of(const BlockCompute& compute, const BlockGroups& groups) {
  BlockTraffic traffic;
  for (const Matmul& p : compute.matmuls) add_matmul(p, groups, traffic);
  for (const Collective& c : compute.collectives) add_collective(c, compute.context, groups, traffic);
  const Attention& attention = compute.attention;
  if (attention.ring > 1) {
    const double keys = (attention.ring - 1) * attention.kv_bytes;
    traffic.forward.context += keys;
    traffic.backward.context += keys + attention.ring * attention.kv_grad_bytes;
  }
  return traffic;
}

/// Traffic of a stage's blocks for one micro-batch, with recomputation.
PassTraffic stage_traffic(const ModelCost& model, const layout::StageBlocks& stage) {
  const BlockGroups groups(model.run());
  PassTraffic sum;
  for (const RepeatedCompute& part : stage_compute(model, stage)) {
    const BlockTraffic traffic = traffic_of(part.compute, groups);
    sum.add(traffic.forward, part.times + part.recomputed);
    sum.add(traffic.backward, part.times);
  }
  return sum;
}

/// Micro-batches whose block uses the tied embedding for lookups in one backward pass and for its logits in a
/// later weight-gradient pass.
int split_table_backwards(const config::Run& run, const StageMemory& memory,
                          const schedule::Program& program) {
  if (run.model.untie_embeddings_and_output_weights) return 0;
  return static_cast<int>(std::ranges::count_if(program, [&](const schedule::Action& a) {
    const layout::StageBlocks& stage = memory.stages[static_cast<std::size_t>(a.chunk)];
    return a.kind == schedule::ActionKind::kBackwardInput && stage.has(BlockKind::kMtpLayer) &&
           stage.has(BlockKind::kHead);
  }));
}

/// Data-parallel traffic: unsharded gradients and parameters within an instance, and this rank's shard
/// between instances. With FSDP units a shared table is communicated with each block that reads it, in every
/// pass.
void add_data(const config::Run& run, const StageMemory& memory, const layout::Mesh& mesh, int microbatches,
              const schedule::Program& program, StageTraffic& traffic) {
  const layout::Sharding sharding = layout::sharding_of(run.parallel);
  const layout::ReplicaLevels levels = layout::replica_levels(run.parallel, mesh);
  const config::Dtypes dtypes = config::dtypes_of(run);
  const auto parameter = static_cast<double>(config::bytes(dtypes.parameter_wire));
  const auto gradient = static_cast<double>(config::bytes(dtypes.gradient_wire));
  const bool shards_gradients = sharding >= layout::Sharding::kGradients,
             shards_params = sharding == layout::Sharding::kParameters;
  const double extra = shards_gradients ? static_cast<double>(memory.extra_tied_elements) : 0;
  const double split = shards_gradients
                           ? static_cast<double>(memory.elements_of(layout::HeldBy::kTiedEmbeddings)) *
                                 split_table_backwards(run, memory, program)
                           : 0;
  const double scatters = shards_gradients ? microbatches : 1;
  const double gathers =
      shards_params ? (run.parallel.torch_fsdp2_reshard_after_forward ? 2.0 : 1.0) * microbatches : 1;
  const auto add = [&](layout::ParamGroup group, double elements, double extra_table, double split_table) {
    const int inner = levels.inner.of(group), outer = levels.outer.of(group);
    traffic.data +=
        ring_bytes(((elements + extra_table) * scatters + split_table) * gradient, inner) +
        (sharding == layout::Sharding::kNone
             ? ring_bytes(elements * gradient, inner)
             : ring_bytes((elements + (shards_params ? extra_table : 0)) * parameter, inner) * gathers);
    const double part = sharding == layout::Sharding::kNone ? elements : elements / inner;
    traffic.outer_data += ring_bytes(part * gradient, outer) +
                          ring_bytes(part * (levels.outer_sharded ? parameter : gradient), outer);
  };
  for (const layout::ParamGroup group : layout::kParamGroups) {
    const bool has_tables = group == layout::ParamGroup::kDense;
    add(group, static_cast<double>(memory.group_elements.of(group)), has_tables ? extra : 0,
        has_tables ? split : 0);
  }
}

/// All-reduce of parameters shared by several stages, for the shard that the rank updates.
double shared_param_bytes(const ModelCost& model, const StageMemory& memory, const layout::Mesh& mesh,
                          int rank) {
  const config::Run& run = model.run();
  const layout::Sharding sharding = layout::sharding_of(run.parallel);
  const layout::ReplicaLevels levels = layout::replica_levels(run.parallel, mesh);
  const double parts =
      (sharding >= layout::Sharding::kOptimizer ? levels.inner.of(layout::ParamGroup::kDense) : 1) *
      (levels.outer_sharded ? levels.outer.of(layout::ParamGroup::kDense) : 1);
  const auto gradient = static_cast<double>(config::bytes(config::dtypes_of(run).main_gradient));
  const auto stages = model.stages();
  double bytes = 0;
  for (std::size_t i = 0; i < memory.held_elements.size(); ++i) {
    const auto held_by = static_cast<layout::HeldBy>(i);
    const std::int64_t elements = memory.held_elements[i];
    if (held_by == layout::HeldBy::kOneStage || elements == 0) continue;
    const std::vector<int> ranks = layout::holders(run.model, run.parallel, stages, held_by);
    if (std::ranges::find(ranks, rank) == ranks.end()) continue;
    bytes += 2 * ring_bytes(static_cast<double>(elements) / parts * gradient, static_cast<int>(ranks.size()));
  }
  return bytes;
}

}  // namespace

std::vector<StageTraffic> plan_traffic(const config::Run& given) {
  const config::Run run = layout::with_fixed_context_size(given);
  return plan_traffic(ModelCost(run));
}

std::vector<StageTraffic> plan_traffic(const ModelCost& model) {
  const config::Run& run = model.run();
  const layout::Mesh mesh(run.parallel);
  const std::vector<StageMemory> memory = plan_memory(model);
  const schedule::Schedule schedule = schedule_of(run);
  std::vector<StageTraffic> traffic;
  for (std::size_t rank = 0; rank < memory.size(); ++rank) {
    StageTraffic t;
    PassTraffic blocks;
    for (const layout::StageBlocks& stage : memory[rank].stages) blocks.add(stage_traffic(model, stage), 1);
    t.tensor = blocks.tensor * schedule.microbatches;
    t.context = blocks.context * schedule.microbatches;
    t.dispatch = blocks.dispatch * schedule.microbatches;
    for (const schedule::Action& a : schedule.programs[rank]) {
      const layout::StageBlocks& stage = memory[rank].stages[static_cast<std::size_t>(a.chunk)];
      if (schedule::is_send(a.kind))
        t.pipeline += static_cast<double>(message_bytes(
            model, a.kind == schedule::ActionKind::kSendActivation ? stage.states_out : stage.states_in));
    }
    add_data(run, memory[rank], mesh, schedule.microbatches, schedule.programs[rank], t);
    t.shared_embeddings = shared_param_bytes(model, memory[rank], mesh, static_cast<int>(rank));
    traffic.push_back(t);
  }
  return traffic;
}

}  // namespace colonnade::cost
