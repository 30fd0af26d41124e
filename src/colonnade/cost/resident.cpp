// Memory of a rank between steps: parameters, gradients, optimizer states and rotary embeddings, and the
// unsharded part of them at any time.
#include <algorithm>
#include <set>

#include "colonnade/config/optimizers.h"
#include "colonnade/cost/blocks/sizes.h"
#include "colonnade/cost/flat_layout.h"
#include "colonnade/cost/memory.h"
#include "colonnade/layout/buckets.h"
#include "colonnade/layout/layer_kind.h"
#include "colonnade/layout/mesh.h"
#include "colonnade/layout/optimizer_groups.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/layout/recompute.h"
#include "colonnade/schedule/kinds.h"

namespace colonnade::cost {
namespace {

using layout::BlockKind;

int num_units(const ModelBlocks& model, const layout::StageBlocks& stage) {
  return for_each_stage_param(model, stage, {}, [](const layout::ParamSpec&, int) {});
}

/// Bytes of main copy and optimizer states per element that `kind` updates, without the scales, two numbers
/// per tensor.
std::int64_t optimizer_bytes(const config::Run& run, const config::Dtypes& dtypes,
                             config::OptimizerKind kind) {
  std::int64_t bytes = dtypes.has_main_copy() ? config::bytes(dtypes.main_parameter) : 0;
  for (const std::string_view state : config::optimizer_states(kind, run.optimizer))
    bytes += config::bytes(dtypes.state(state));
  return bytes;
}

/// Bytes of main copies and optimizer states of the rank that holds most of them.
std::int64_t optimizer_bytes(const ModelBlocks& model, const config::Dtypes& dtypes,
                             const std::vector<layout::StageBlocks>& stages, const layout::FlatLayout& layout,
                             const layout::ReplicaCounts& shards) {
  const config::Run& run = model.run();
  if (config::optimizer_kinds(run.optimizer).size() == 1 && run.optimizer.freeze_parameters.empty())
    return layout::largest_shard(layout, shards) * optimizer_bytes(run, dtypes, run.optimizer.optimizer);
  const auto groups = layout::optimizer_groups(run.optimizer);
  const layout::FirstReaders first = model.first_readers(stages);
  std::vector<std::vector<std::int64_t>> bytes;  // by model chunk and trained parameter, as in flat_layout()
  for (const layout::StageBlocks& stage : stages) {
    auto& chunk = bytes.emplace_back();
    for_each_stage_param(model, stage, first, [&](const layout::ParamSpec& spec, int) {
      if (!spec.trained) return;
      const layout::OptimizerGroup& group = groups[layout::first_match(groups, spec)];
      const config::OptimizerKind kind = group.optimizer.value_or(run.optimizer.optimizer);
      chunk.push_back(group.frozen ? 0 : optimizer_bytes(run, dtypes, kind));
    });
  }
  return layout::largest_shard(
      layout, shards, [&](const layout::PlacedParam& entry) { return bytes[entry.chunk][entry.index]; });
}

/// Cosines and sines of the rotary embeddings, for each base that a layer of these stages uses.
std::int64_t rotary_table_bytes(const ModelBlocks& model, const std::vector<layout::StageBlocks>& stages) {
  const config::Run& run = model.run();
  const config::Model& m = run.model;
  if (!m.has_rotary() || model.is_custom()) return 0;
  const std::int64_t length = std::max(run.training.seq_length, m.max_position_embeddings);
  std::set<bool> bases;
  const auto add = [&](std::int64_t layer) {
    bases.insert(m.rotary_base_local && layout::attention_window(m, layer) > 0);
  };
  for (const layout::StageBlocks& stage : stages) {
    for (const std::int64_t i : stage.layers()) add(i);
    if (stage.has(BlockKind::kMtpLayer)) add(m.total_layers());
  }
  const std::int64_t tables = m.query_scaling_beta != 0 ? 2 : 1;
  return tables * static_cast<std::int64_t>(bases.size()) * length * m.rotary_channels() * kFp32;
}

/// Copies of `length` gradients in the dtype of the wire, and of the received shards of `parts` ranks; an
/// all-reduce (`parts` 1) receives in place.
std::int64_t reduce_copies(const config::Parallel& p, const config::Dtypes& dtypes, std::int64_t length,
                           int parts) {
  if (!dtypes.rounds_gradients()) return 0;
  const std::int64_t received = parts == 1                                    ? 0
                                : p.ddp_reduce_scatter_with_fp32_accumulation ? length
                                                                              : length / parts;
  return (length + received) * config::bytes(dtypes.gradient_wire);
}

/// Adds up the buckets of one stage's FSDP units: unsharded parameters, unsharded gradients, delayed weight
/// gradients, and the buffers of a bucket during its reduce-scatter. A bucket is freed once the next one is
/// complete.
class UnitAccumulator {
 public:
  UnitAccumulator(const config::Run& run, const config::Dtypes& dtypes, int units)
      : p_(run.parallel),
        dtypes_(dtypes),
        parameter_(layout::sharding_of(p_) == layout::Sharding::kParameters ? config::bytes(dtypes.parameter)
                                                                            : 0),
        gradient_(config::bytes(dtypes.main_gradient)),
        keeps_params_(!p_.torch_fsdp2_reshard_after_forward),
        has_shared_experts_(run.model.moe.num_experts > 0 &&
                            run.model.moe.shared_expert_intermediate_size > 0),
        units_(static_cast<std::size_t>(units)) {}

  /// `delays_wgrad`: this unit's gradient of the bucket may be delayed. `shared_with_earlier`: earlier blocks
  /// contribute to the bucket too, so its gradient is complete only at the end of this block's pass.
  void add(int unit, const layout::FlatBucket& bucket, int replicas, bool delays_wgrad,
           bool shared_with_earlier = false) {
    const bool deterministic = p_.deterministic_mode;  // then gradients of all replicas are received
    if (replicas == 1 && !deterministic) return;
    Unit& u = units_[static_cast<std::size_t>(unit)];
    const std::int64_t length = bucket.end - bucket.begin, part = length / replicas;
    if (replicas > 1) u.params += length * parameter_;
    u.shard += part * gradient_;
    const std::int64_t copies = reduce_copies(p_, dtypes_, length, replicas);  // replace the gradients
    const std::int64_t received = (!deterministic ? part : replicas > 1 ? length + part : length) * gradient_;
    // Gradients are freed once copied, before any shard is received.
    const std::int64_t sent = copies > 0 ? length * config::bytes(dtypes_.gradient_wire) : 0;
    u.buckets.push_back(
        {.order = shared_with_earlier ? kLast : order_of(bucket),
         .delays_wgrad = delays_wgrad,
         .unsharded = length * gradient_,
         .in_flight =
             (copies > 0 ? copies : length * gradient_) + (deterministic ? length : part) * gradient_,
         .received = copies > 0 ? std::max(sent, copies + received - length * gradient_) : received});
    if (bucket.param_group == layout::ParamGroup::kDense && replicas > 1 && !keeps_params_)
      u.dense_params += length * parameter_;
    const auto added = u.buckets.end() - 1;
    std::rotate(std::upper_bound(u.buckets.begin(), added, added->order,
                                 [](int order, const Bucket& other) { return order < other.order; }),
                added, u.buckets.end());
  }

  /// By unit, with the next unit's parameters and the previous unit's gradients if communication overlaps.
  /// Embedding lookups do not delay their gradients.
  [[nodiscard]] std::vector<UnitBytes> bytes(bool embedding) const {
    std::vector<UnitBytes> all;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      const Unit& u = units_[i];
      const bool next = i + 1 < units_.size(), overlaps = p_.overlap_grad_reduce && next;
      const bool is_lookup = i == 0 && embedding;
      const std::int64_t last = overlaps ? units_[i + 1].last(true) : 0;
      const std::int64_t params = keeps_params_ ? 0 : u.params;  // counted in kept_params
      UnitBytes b{.forward = u.params, .backward = params + u.gradients() + last};
      if (p_.overlap_param_gather && !keeps_params_ && i > 0) b.backward += units_[i - 1].params;
      b.backward_input = b.backward - last + (overlaps ? units_[i + 1].last(false) : 0);
      if (p_.overlap_param_gather && next) b.forward += units_[i + 1].params;
      b.reduce_own_group = u.reduce_peak(true, /*of_experts=*/true);
      b.reduce = u.reduce_peak(true, /*of_experts=*/false);
      b.reduce_input = u.reduce_peak(is_lookup, /*of_experts=*/false);
      if (!is_lookup) count_weights(u, last, b);
      if (keeps_params_) b.kept_params = u.params;
      b.pending_sum = u.shard;
      all.push_back(b);
    }
    return all;
  }

 private:
  /// Order in which the buckets of a block are complete: experts before attention, the output embedding
  /// before the final norm, and norms last.
  static int order_of(const layout::FlatBucket& bucket) {
    if (bucket.param_group == layout::ParamGroup::kExpert) return 0;
    switch (bucket.reduction) {
      case layout::ExtraReduction::kStages:
        return 1;
      case layout::ExtraReduction::kNone:
        return 2;
      case layout::ExtraReduction::kSharedRows:
        return 3;
      default:
        return 4;
    }
  }
  static constexpr int kLast = 5;

  struct Bucket {
    int order;
    bool delays_wgrad;
    std::int64_t unsharded, in_flight, received;
  };
  struct Unit {
    std::int64_t params = 0, dense_params = 0, shard = 0;
    std::vector<Bucket> buckets;  ///< in order of completion in a backward pass

    [[nodiscard]] std::int64_t gradients() const {
      std::int64_t sum = 0;
      for (const Bucket& bucket : buckets) sum += bucket.unsharded;
      return sum;
    }
    /// Buffers of the last bucket of a pass during its reduce-scatter.
    [[nodiscard]] std::int64_t last(bool with_delayed) const {
      std::int64_t in_flight = 0;
      for (const Bucket& bucket : buckets)
        if (with_delayed || !bucket.delays_wgrad) in_flight = bucket.in_flight;
      return in_flight;
    }
    /// Peak during the reduce-scatters of expert buckets, whose parameters are freed first, or of all others.
    [[nodiscard]] std::int64_t reduce_peak(bool with_delayed, bool of_experts) const {
      std::int64_t left = gradients(), most = 0;
      for (const Bucket& bucket : buckets) {
        if (!with_delayed && bucket.delays_wgrad) continue;
        if ((bucket.order == 0) == of_experts)
          most = std::max(most, left + bucket.received + (of_experts ? dense_params : 0));
        left -= bucket.unsharded;
      }
      return most;
    }
  };

  /// A bucket is allocated at its first weight gradient. Shared experts come first: a small block's single
  /// dense bucket is alive during those of routed experts.
  void count_weights(const Unit& u, std::int64_t before, UnitBytes& b) const {
    std::int64_t others = 0, largest = 0;
    for (const Bucket& bucket : u.buckets)
      if (bucket.delays_wgrad && bucket.order > 0) ++others, largest = std::max(largest, bucket.unsharded);
    const std::int64_t alongside = has_shared_experts_ && others == 1 ? largest : 0;
    for (const Bucket& bucket : u.buckets) {
      if (!bucket.delays_wgrad) continue;
      const std::int64_t here = bucket.unsharded + (bucket.order == 0 ? alongside : 0);
      b.backward_weight = std::max(b.backward_weight, here + before);
      b.reduce_weight = std::max(b.reduce_weight, here + bucket.received);
      before = p_.overlap_grad_reduce ? bucket.in_flight : 0;
    }
  }

  const config::Parallel& p_;
  config::Dtypes dtypes_;
  std::int64_t parameter_, gradient_;  ///< bytes of an unsharded parameter, and of a main gradient
  bool keeps_params_, has_shared_experts_;
  std::vector<Unit> units_;
};

/// UnitBytes by stage and block. An embedding that several blocks read counts for each.
std::vector<std::vector<UnitBytes>> unit_bytes(const ModelBlocks& model, const config::Dtypes& dtypes,
                                               const layout::FlatLayout& layout, const StageMemory& memory,
                                               const layout::ReplicaCounts& replicas) {
  const config::Run& run = model.run();
  const layout::FirstReaders readers = model.first_readers(memory.stages);
  std::vector<std::vector<UnitBytes>> all;
  int first = 0;
  for (const layout::StageBlocks& stage : memory.stages) {
    const int count = num_units(model, stage);
    const bool is_reread = layout::reuses_word_embeddings(run.model, stage, readers);
    const bool reads_in_head = stage.has(BlockKind::kHead) && !run.model.untie_embeddings_and_output_weights;
    UnitAccumulator units(run, dtypes, count);
    for (const layout::FlatBucket& bucket : layout.buckets) {
      const bool is_embedding = bucket.held_by == layout::HeldBy::kTiedEmbeddings;
      const auto add = [&](int unit, bool shared_with_earlier) {
        const bool is_lookup = is_embedding && !(reads_in_head && unit == count - 1);
        units.add(unit, bucket, replicas.of(bucket.param_group), bucket.deferred && !is_lookup,
                  shared_with_earlier);
      };
      if (bucket.unit >= first && bucket.unit < first + count) add(bucket.unit - first, false);
      if (is_embedding && is_reread) add(count - 1, true);
    }
    all.push_back(units.bytes(stage.has(BlockKind::kEmbedding)));
    first += count;
  }
  return all;
}

/// Copies of a gradient bucket that is reduced once per step, one bucket at a time: within an instance,
/// possibly during backward passes, and between instances after them.
struct ReduceCopies {
  std::int64_t within_instance = 0, between_instances = 0;
};
ReduceCopies largest_reduce_copies(const config::Run& run, const config::Dtypes& dtypes,
                                   const layout::FlatLayout& layout, const layout::ReplicaLevels& levels) {
  const layout::Sharding sharding = layout::sharding_of(run.parallel);
  ReduceCopies most;
  for (const layout::FlatBucket& bucket : layout.buckets) {
    const std::int64_t length = bucket.end - bucket.begin;
    const int inner = levels.inner.of(bucket.param_group), outer = levels.outer.of(bucket.param_group);
    const int parts = sharding >= layout::Sharding::kOptimizer ? inner : 1;
    if (inner > 1 && sharding < layout::Sharding::kGradients)  // else it is part of its unit
      most.within_instance =
          std::max(most.within_instance, reduce_copies(run.parallel, dtypes, length, parts));
    if (outer > 1)
      most.between_instances =
          std::max(most.between_instances,
                   reduce_copies(run.parallel, dtypes, length / parts, levels.outer_sharded ? outer : 1));
  }
  return most;
}

/// The copies are alive during the backward pass of each block except the head, which runs first.
std::vector<std::vector<UnitBytes>> units_with_copies(const ModelBlocks& model, const StageMemory& memory,
                                                      std::int64_t bytes) {
  std::vector<std::vector<UnitBytes>> all;
  for (const layout::StageBlocks& stage : memory.stages) {
    const int count = num_units(model, stage);
    all.emplace_back(static_cast<std::size_t>(count),
                     UnitBytes{.backward = bytes, .backward_input = bytes, .backward_weight = bytes});
    if (stage.has(BlockKind::kHead)) all.back().back() = {};
  }
  return all;
}

/// Fills in the element counts of the flat buffer.
void count_elements(const ModelBlocks& model, const layout::FlatLayout& layout, StageMemory& memory) {
  for (const layout::PlacedParam& entry : layout.entries) memory.num_parameters += entry.numel;
  for (const layout::FlatBucket& bucket : layout.buckets) {
    const std::int64_t length = bucket.end - bucket.begin;
    memory.group_elements.of(bucket.param_group) += length;
    memory.held_elements[static_cast<std::size_t>(bucket.held_by)] += length;
  }
  const layout::FirstReaders readers = model.first_readers(memory.stages);
  for (const layout::StageBlocks& stage : memory.stages)
    if (layout::reuses_word_embeddings(model.run().model, stage, readers))
      memory.extra_tied_elements += memory.elements_of(layout::HeldBy::kTiedEmbeddings);
  memory.elements = layout.size;
}

/// Fills in the memory between steps.
void count_resident(const ModelBlocks& model, const layout::Mesh& mesh, StageMemory& memory) {
  const config::Run& run = model.run();
  const layout::FlatLayout layout = flat_layout(model, mesh, memory.stages);
  count_elements(model, layout, memory);
  const layout::Sharding sharding = layout::sharding_of(run.parallel);
  const layout::ReplicaLevels levels = layout::replica_levels(run.parallel, mesh);
  const auto sharded_over = [&](layout::Sharding least, const layout::ReplicaCounts& shards) {
    return sharding >= least ? shards : layout::ReplicaCounts();
  };
  const config::Dtypes dtypes = config::dtypes_of(run);
  const std::int64_t parameter = config::bytes(dtypes.parameter);
  const std::int64_t gradient = config::bytes(dtypes.main_gradient);
  const layout::ReplicaCounts param_shards = sharded_over(layout::Sharding::kParameters, levels.inner);
  memory.parameters = layout::resident_elements(layout, param_shards) * parameter;
  memory.gradients =
      layout::resident_elements(layout, sharded_over(layout::Sharding::kGradients, levels.inner)) * gradient;
  memory.optimizer = optimizer_bytes(model, dtypes, memory.stages, layout,
                                     sharded_over(layout::Sharding::kOptimizer, levels.shard_counts()));
  for (const layout::FlatBucket& bucket : layout.buckets) {
    const std::int64_t length = bucket.end - bucket.begin;
    const std::int64_t params = param_shards.of(bucket.param_group) > 1 ? length * parameter : 0;
    const bool shards_gradients =
        sharding >= layout::Sharding::kGradients &&
        (levels.inner.of(bucket.param_group) > 1 || run.parallel.deterministic_mode);
    memory.init_bucket = std::max(memory.init_bucket, params + (shards_gradients ? length * gradient : 0));
    if (!run.parallel.torch_fsdp2_reshard_after_forward) memory.gathered += params;
  }
  if (sharding >= layout::Sharding::kGradients)
    memory.units = unit_bytes(model, dtypes, layout, memory, levels.inner);
  const ReduceCopies copies = largest_reduce_copies(run, dtypes, layout, levels);
  memory.reduce_copies = std::max(copies.within_instance, copies.between_instances);
  if (run.parallel.overlap_grad_reduce && copies.within_instance > 0 && memory.units.empty())
    memory.units = units_with_copies(model, memory, copies.within_instance);
  memory.rotary_tables = rotary_table_bytes(model, memory.stages);
}

}  // namespace

std::vector<StageMemory> plan_resident(const ModelBlocks& model) {
  const layout::Mesh mesh(model.run().parallel);
  std::vector<StageMemory> plan;
  for (std::vector<layout::StageBlocks>& stages : model.stages_by_rank()) {
    StageMemory memory;
    memory.stages = std::move(stages);
    count_resident(model, mesh, memory);
    plan.push_back(std::move(memory));
  }
  return plan;
}

}  // namespace colonnade::cost
