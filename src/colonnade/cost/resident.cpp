// What lies on a rank between steps: parameters, gradients, optimizer states, tables, and how much of them is
// whole at a time.
#include <algorithm>
#include <set>

#include "colonnade/cost/flat_layout.h"
#include "colonnade/cost/memory.h"
#include "colonnade/layout/buckets.h"
#include "colonnade/layout/mesh.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/layout/recompute.h"
#include "colonnade/schedule/kinds.h"

namespace colonnade::cost {
namespace {

constexpr std::int64_t kFp32 = 4;

int number_of_units(const config::Run& run, const layout::StageBlocks& stage) {
  return for_each_held(run, stage, {}, [](const layout::ParamSpec&, int) {});
}

/// Bytes of optimizer state per element that a rank updates.
std::int64_t optimizer_bytes(const config::Run& run) {
  const bool main_copy = run.model.params_dtype != config::ParamsDtype::kFloat32;
  const bool adam = run.optimizer.optimizer == config::OptimizerKind::kAdam;
  const std::int64_t moments = adam ? 2 : run.optimizer.sgd_momentum != 0 ? 1 : 0;
  return kFp32 * (moments + (main_copy ? 1 : 0));
}

/// Cosines and sines of the rotary positions, of each base that a layer of these stages has.
std::int64_t table_bytes(const config::Run& run, const std::vector<layout::StageBlocks>& stages) {
  const config::Model& m = run.model;
  if (!m.rotary()) return 0;
  const std::int64_t length = std::max(run.training.seq_length, m.max_position_embeddings);
  std::set<bool> bases;
  const auto add = [&](std::int64_t layer) {
    bases.insert(m.rotary_base_local && layout::window_of(m, layer) > 0);
  };
  for (const layout::StageBlocks& stage : stages) {
    for (std::int64_t i = 0; i < stage.num_layers; ++i) add(stage.first_layer + i);
    if (stage.final_norm && m.mtp_num_layers > 0) add(m.num_layers);
  }
  return static_cast<std::int64_t>(bases.size()) * length * m.rotary_channels() * kFp32;
}

/// Copies of `length` gradients in the type in which they travel to `parts` ranks, and of what arrives of
/// them: nothing else where every rank needs all of their sum.
std::int64_t travelling_copies(const config::Parallel& p, std::int64_t length, int parts) {
  if (!p.grad_reduce_in_bf16) return 0;
  const std::int64_t arriving = parts == 1                                    ? 0
                                : p.ddp_reduce_scatter_with_fp32_accumulation ? length
                                                                              : length / parts;
  return (length + arriving) * layout::travelling_element(p);
}

/// Adds up the buckets of one stage's units: whole values, gradients where they are cut, those of them that
/// may wait, and what a bucket of gradients takes on its way and when it arrives. A bucket is gone when the
/// next one is complete.
class UnitCount {
 public:
  UnitCount(const config::Run& run, int units)
      : p_(run.parallel),
        element_(layout::sharding_of(p_) == layout::Sharding::kParameters ? element_size(run.model) : 0),
        stays_(!p_.torch_fsdp2_reshard_after_forward),
        has_shared_experts_(run.model.moe.num_experts > 0 &&
                            run.model.moe.shared_expert_intermediate_size > 0),
        units_(static_cast<std::size_t>(units)) {}

  /// `waits`: what this unit has to give of it may. `before_another`: blocks in front of it give more, so
  /// that nothing but the end of this block's pass says that its gradient is complete.
  void add(int unit, const layout::FlatBucket& bucket, int replicas, bool waits,
           bool before_another = false) {
    const bool in_order = p_.deterministic_mode;  // then what arrives is that of all replicas
    if (replicas == 1 && !in_order) return;
    Unit& u = units_[static_cast<std::size_t>(unit)];
    const std::int64_t length = bucket.end - bucket.begin, part = length / replicas;
    if (replicas > 1) u.values += length * element_;
    u.parts += part * kFp32;
    const std::int64_t copies = travelling_copies(p_, length, replicas);  // in place of the gradients
    const std::int64_t arriving = (!in_order ? part : replicas > 1 ? length + part : length) * kFp32;
    // The gradients go as soon as they are copied, before anything arrives.
    const std::int64_t sent = copies > 0 ? length * layout::travelling_element(p_) : 0;
    u.buckets.push_back(
        {.turn = before_another ? kLastTurn : turn_of(bucket),
         .waits = waits,
         .whole = length * kFp32,
         .flying = (copies > 0 ? copies : length * kFp32) + (in_order ? length : part) * kFp32,
         .arriving = copies > 0 ? std::max(sent, copies + arriving - length * kFp32) : arriving});
    if (bucket.family == layout::Family::kDense && replicas > 1 && !stays_)
      u.dense_values += length * element_;
    const auto added = u.buckets.end() - 1;
    std::rotate(std::upper_bound(u.buckets.begin(), added, added->turn,
                                 [](int turn, const Bucket& other) { return turn < other.turn; }),
                added, u.buckets.end());
  }

  /// With the next one's values and the last one's gradients where they overlap. What an embedding has to
  /// give does not wait.
  [[nodiscard]] std::vector<UnitBytes> bytes(bool embedding) const {
    std::vector<UnitBytes> all;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      const Unit& u = units_[i];
      const bool next = i + 1 < units_.size(), overlaps = p_.overlap_grad_reduce && next;
      const bool looks_up = i == 0 && embedding;
      const std::int64_t last = overlaps ? units_[i + 1].last(true) : 0;
      const std::int64_t values = stays_ ? 0 : u.values;  // counted apart
      UnitBytes b{.forward = u.values, .backward = values + u.gradients() + last};
      if (p_.overlap_param_gather && !stays_ && i > 0) b.backward += units_[i - 1].values;
      b.input = b.backward - last + (overlaps ? units_[i + 1].last(false) : 0);
      if (p_.overlap_param_gather && next) b.forward += units_[i + 1].values;
      b.landing_experts = u.landing(true, /*of_experts=*/true);
      b.landing = u.landing(true, /*of_experts=*/false);
      b.landing_input = u.landing(looks_up, /*of_experts=*/false);
      if (!looks_up) count_weights(u, last, b);
      if (stays_) b.stays = u.values;
      b.summed = u.parts;
      all.push_back(b);
    }
    return all;
  }

 private:
  /// When it is complete among those of its block: experts before the attention in front of them, a table
  /// before the norm in front of the head, and norms last.
  static int turn_of(const layout::FlatBucket& bucket) {
    if (bucket.family == layout::Family::kExpert) return 0;
    switch (bucket.further) {
      case layout::FurtherSum::kStages:
        return 1;
      case layout::FurtherSum::kNone:
        return 2;
      case layout::FurtherSum::kSharedRows:
        return 3;
      default:
        return 4;
    }
  }
  static constexpr int kLastTurn = 5;

  struct Bucket {
    int turn;
    bool waits;
    std::int64_t whole, flying, arriving;
  };
  struct Unit {
    std::int64_t values = 0, dense_values = 0, parts = 0;
    std::vector<Bucket> buckets;  ///< as they are complete in a backward pass

    [[nodiscard]] std::int64_t gradients() const {
      std::int64_t sum = 0;
      for (const Bucket& bucket : buckets) sum += bucket.whole;
      return sum;
    }
    /// The last bucket of a pass, on its way.
    [[nodiscard]] std::int64_t last(bool with_waiting) const {
      std::int64_t flying = 0;
      for (const Bucket& bucket : buckets)
        if (with_waiting || !bucket.waits) flying = bucket.flying;
      return flying;
    }
    /// Of experts, whose weights are gone before the others, or of all others.
    [[nodiscard]] std::int64_t landing(bool with_waiting, bool of_experts) const {
      std::int64_t left = gradients(), most = 0;
      for (const Bucket& bucket : buckets) {
        if (!with_waiting && bucket.waits) continue;
        if ((bucket.turn == 0) == of_experts)
          most = std::max(most, left + bucket.arriving + (of_experts ? dense_values : 0));
        left -= bucket.whole;
      }
      return most;
    }
  };

  /// A bucket has memory from its first product on. The products of shared experts come first: the one dense
  /// bucket of a small block lies beside those of experts.
  void count_weights(const Unit& u, std::int64_t before, UnitBytes& b) const {
    std::int64_t others = 0, largest = 0;
    for (const Bucket& bucket : u.buckets)
      if (bucket.waits && bucket.turn > 0) ++others, largest = std::max(largest, bucket.whole);
    const std::int64_t beside = has_shared_experts_ && others == 1 ? largest : 0;
    for (const Bucket& bucket : u.buckets) {
      if (!bucket.waits) continue;
      const std::int64_t here = bucket.whole + (bucket.turn == 0 ? beside : 0);
      b.weights = std::max(b.weights, here + before);
      b.landing_weights = std::max(b.landing_weights, here + bucket.arriving);
      before = p_.overlap_grad_reduce ? bucket.flying : 0;
    }
  }

  const config::Parallel& p_;
  std::int64_t element_;
  bool stays_, has_shared_experts_;
  std::vector<Unit> units_;
};

/// Of each block of each stage. A table that several blocks read counts for each.
std::vector<std::vector<UnitBytes>> unit_bytes(const config::Run& run, const layout::FlatLayout& layout,
                                               const StageMemory& memory, const layout::Replicas& replicas) {
  const layout::FirstReaders readers = layout::first_readers(run.model, memory.stages);
  std::vector<std::vector<UnitBytes>> all;
  int first = 0;
  for (const layout::StageBlocks& stage : memory.stages) {
    const int count = number_of_units(run, stage);
    const bool words_again = layout::reads_words_again(run.model, stage, readers);
    const bool multiplies = stage.head && !run.model.untie_embeddings_and_output_weights;
    UnitCount units(run, count);
    for (const layout::FlatBucket& bucket : layout.buckets) {
      const bool words = bucket.held_by == layout::HeldBy::kEnds;
      const auto add = [&](int unit, bool before_another) {
        const bool looked_up = words && !(multiplies && unit == count - 1);
        units.add(unit, bucket, replicas.of(bucket.family), bucket.waits && !looked_up, before_another);
      };
      if (bucket.unit >= first && bucket.unit < first + count) add(bucket.unit - first, false);
      if (words && words_again) add(count - 1, true);
    }
    all.push_back(units.bytes(stage.embedding));
    first += count;
  }
  return all;
}

/// Of a bucket whose gradients are summed over the data ranks once a step, one on its way at a time: within
/// an instance, which may be beside backward passes, and between instances behind them.
struct Travelling {
  std::int64_t within = 0, between = 0;
};
Travelling largest_travelling(const config::Run& run, const layout::FlatLayout& layout,
                              const layout::Levels& levels) {
  const layout::Sharding sharding = layout::sharding_of(run.parallel);
  Travelling most;
  for (const layout::FlatBucket& bucket : layout.buckets) {
    const std::int64_t length = bucket.end - bucket.begin;
    const int inner = levels.inner.of(bucket.family), outer = levels.outer.of(bucket.family);
    const int parts = sharding >= layout::Sharding::kOptimizer ? inner : 1;
    if (inner > 1 && sharding < layout::Sharding::kGradients)  // else with its unit
      most.within = std::max(most.within, travelling_copies(run.parallel, length, parts));
    if (outer > 1)
      most.between = std::max(most.between,
                              travelling_copies(run.parallel, length / parts, levels.outer_cut ? outer : 1));
  }
  return most;
}

/// They are on their way while each block goes backward but for the head, which goes first.
std::vector<std::vector<UnitBytes>> beside_backward(const config::Run& run, const StageMemory& memory,
                                                    std::int64_t bytes) {
  std::vector<std::vector<UnitBytes>> all;
  for (const layout::StageBlocks& stage : memory.stages) {
    const int count = number_of_units(run, stage);
    all.emplace_back(static_cast<std::size_t>(count),
                     UnitBytes{.backward = bytes, .input = bytes, .weights = bytes});
    if (stage.head) all.back().back() = {};
  }
  return all;
}

/// Fills in elements of the flat buffer, by kind.
void count_elements(const config::Model& model, const layout::FlatLayout& layout, StageMemory& memory) {
  for (const layout::FlatEntry& entry : layout.entries) memory.num_parameters += entry.numel;
  for (const layout::FlatBucket& bucket : layout.buckets) {
    const std::int64_t length = bucket.end - bucket.begin;
    if (bucket.family == layout::Family::kExpert) memory.expert_elements += length;
    if (bucket.held_by == layout::HeldBy::kEnds) memory.tied_elements += length;
    if (bucket.held_by == layout::HeldBy::kEncoder) memory.encoder_elements += length;
    if (bucket.held_by == layout::HeldBy::kDecoder) memory.decoder_elements += length;
  }
  const layout::FirstReaders readers = layout::first_readers(model, memory.stages);
  for (const layout::StageBlocks& stage : memory.stages)
    if (layout::reads_words_again(model, stage, readers)) memory.read_again += memory.tied_elements;
  memory.elements = layout.size;
}

/// Fills in what lies between steps.
void hold_parameters(const config::Run& run, const layout::Mesh& mesh, StageMemory& memory) {
  const layout::FlatLayout layout = flat_layout(run, mesh, memory.stages);
  count_elements(run.model, layout, memory);
  const layout::Sharding sharding = layout::sharding_of(run.parallel);
  const layout::Levels levels = layout::levels_of(run.parallel, mesh);
  const auto cut = [&](layout::Sharding least, const layout::Replicas& shards) {
    return sharding >= least ? shards : layout::Replicas();
  };
  const std::int64_t element = element_size(run.model);
  const layout::Replicas cuts = cut(layout::Sharding::kParameters, levels.inner);
  memory.parameters = layout::held_elements(layout, cuts) * element;
  memory.gradients = layout::held_elements(layout, cut(layout::Sharding::kGradients, levels.inner)) * kFp32;
  memory.optimizer =
      layout::largest_shard(layout, cut(layout::Sharding::kOptimizer, levels.parts())) * optimizer_bytes(run);
  for (const layout::FlatBucket& bucket : layout.buckets) {
    const std::int64_t length = bucket.end - bucket.begin;
    const std::int64_t values = cuts.of(bucket.family) > 1 ? length * element : 0;
    const bool cuts_gradients = sharding >= layout::Sharding::kGradients &&
                                (levels.inner.of(bucket.family) > 1 || run.parallel.deterministic_mode);
    memory.making = std::max(memory.making, values + (cuts_gradients ? length * kFp32 : 0));
    if (!run.parallel.torch_fsdp2_reshard_after_forward) memory.gathered += values;
  }
  if (sharding >= layout::Sharding::kGradients) memory.units = unit_bytes(run, layout, memory, levels.inner);
  const Travelling travelling = largest_travelling(run, layout, levels);
  memory.travelling = std::max(travelling.within, travelling.between);
  if (run.parallel.overlap_grad_reduce && travelling.within > 0 && memory.units.empty())
    memory.units = beside_backward(run, memory, travelling.within);
  memory.tables = table_bytes(run, memory.stages);
}

}  // namespace

std::vector<StageMemory> plan_resident(const config::Run& run) {
  const layout::Mesh mesh(run.parallel);
  const int ranks = run.parallel.pipeline_model_parallel_size;
  std::vector<StageMemory> plan;
  for (int rank = 0; rank < ranks; ++rank) {
    StageMemory memory;
    memory.stages = layout::stages_of_rank(run.model, run.parallel, rank);
    hold_parameters(run, mesh, memory);
    plan.push_back(std::move(memory));
  }
  return plan;
}

}  // namespace colonnade::cost
