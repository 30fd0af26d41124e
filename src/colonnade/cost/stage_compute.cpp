// See stage_compute.h.
#include "colonnade/cost/stage_compute.h"

#include <algorithm>
#include <array>
#include <utility>

#include "colonnade/cost/blocks/compute_parts.h"
#include "colonnade/layout/recompute.h"

namespace colonnade::cost {
namespace {

using layout::BlockId;
using layout::BlockKind;

/// A block of a stage, or equal layers.
struct CountedBlock {
  const BlockCost& block;
  double count = 1, recomputed = 0;  ///< blocks, and those in recomputed spans
};

/// The stage's blocks before the layers, its layers, and its blocks after the layers.
std::array<std::vector<CountedBlock>, 3> counted_blocks(const ModelCost& model,
                                                        const layout::StageBlocks& stage) {
  std::array<std::vector<CountedBlock>, 3> parts;
  for (const BlockId& id : stage.blocks)
    if (id.kind != BlockKind::kLayer)
      parts[id.kind == BlockKind::kEmbedding ? 0 : 2].push_back({model.block(id)});
  const layout::IndexRange layers = stage.layers();
  const std::int64_t first_saved =
      layers.first + layout::recomputed_layers(model.run().recompute, layers.size());
  model.for_each_distinct_layer([&](const BlockCost& layer) {
    CountedBlock equal{layer, 0};
    for (const std::int64_t i : layers) {
      if (&model.block({BlockKind::kLayer, i}) != &layer) continue;
      equal.count += 1;
      equal.recomputed += i < first_saved ? 1 : 0;
    }
    if (equal.count > 0) parts[1].push_back(equal);
  });
  return parts;
}

/// Adds repetitions to an equal part from `first` on, or a new part.
void merge(std::vector<RepeatedCompute>& parts, std::size_t first, RepeatedCompute part) {
  for (std::size_t i = first; i < parts.size(); ++i) {
    if (parts[i].is_layer != part.is_layer || parts[i].compute != part.compute) continue;
    parts[i].times += part.times;
    parts[i].recomputed += part.recomputed;
    return;
  }
  parts.push_back(std::move(part));
}

/// Concatenation of the hidden states of all predicted tokens for a head on another stage, and of their
/// gradients there; conversions on both stages where the residual stream has another dtype.
void add_state_concat(const ModelCost& model, const layout::StageBlocks& stage,
                      std::vector<RepeatedCompute>& parts) {
  if (stage.states_in == stage.states_out) return;
  const RealSizes z(model.sequences().tokens());
  const double state = z.hidden;
  BlockCompute& compute = parts.emplace_back().compute;
  if (stage.states_out > stage.states_in)
    compute.add_elementwise(2 * static_cast<double>(stage.states_out) * state, 0, 1, 0);
  else
    compute.add_elementwise(0, 2 * static_cast<double>(stage.states_in) * state, 0, 1);
  if (z.stream == z.hidden) return;
  const double converted =
      static_cast<double>(std::max(stage.states_in, stage.states_out)) * (state + z.stream);
  compute.add_elementwise(converted, converted, 1, 1);
}

}  // namespace

std::vector<RepeatedCompute> stage_compute(const ModelCost& model, const layout::StageBlocks& stage,
                                           AttentionKernel kernel) {
  std::vector<RepeatedCompute> parts;
  const auto blocks = counted_blocks(model, stage);
  for (const std::vector<CountedBlock>& counted : blocks) {
    const std::size_t first = parts.size();
    for (const CountedBlock& c : counted) {
      std::vector<RepeatedCompute> of_block;
      c.block.add_compute(kernel, of_block);
      for (RepeatedCompute& part : of_block) {
        part.times *= c.count;
        part.recomputed += c.recomputed;
        merge(parts, first, std::move(part));
      }
    }
  }
  add_state_concat(model, stage, parts);
  if (model.run().recompute.granularity != "selective") return parts;
  const std::size_t first = parts.size();
  for (const std::vector<CountedBlock>& counted : blocks) {
    for (const CountedBlock& c : counted) {
      std::vector<BlockCompute> modules;
      c.block.add_recomputed(kernel, modules);
      for (BlockCompute& module : modules) merge(parts, first, {std::move(module), 0, true, c.count});
    }
  }
  return parts;
}

}  // namespace colonnade::cost
