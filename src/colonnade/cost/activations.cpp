// See activations.h; workspace.cpp has the workspace of backward passes.
#include "colonnade/cost/activations.h"

#include <algorithm>

#include "colonnade/layout/recompute.h"

namespace colonnade::cost {

using layout::BlockId;
using layout::BlockKind;

std::int64_t stage_activations(const ModelCost& model, const layout::StageBlocks& stage) {
  const Sizes& z = model.sequences().tokens();
  if (stage.empty()) return stage.states_in * model.hidden();
  std::int64_t saved = 0, first_saved = stage.layers().first;
  for (const std::int64_t length : layout::recompute_spans(model.run().recompute, stage.layers().size())) {
    saved += model.hidden();
    first_saved += length;
  }
  for (const BlockId& block : stage.blocks)
    if (block.kind != BlockKind::kLayer || block.index >= first_saved) saved += model.block(block).saved();
  if (stage.states_in > stage.states_out) saved += stage.states_in * (z.stream + z.converted);
  if (stage.states_out > stage.states_in) saved -= z.hidden;
  return saved;
}

std::int64_t stage_wgrad_saved(const ModelCost& model, const layout::StageBlocks& stage) {
  std::int64_t bytes = 0;
  for (const BlockId& block : stage.blocks) bytes += model.block(block).wgrad_saved();
  return bytes;
}

std::int64_t batch_bytes(const ModelCost& model) {
  std::int64_t bytes = 0;
  for (const BlockId& block : model.blocks()) bytes += model.block(block).batch();
  return bytes;
}

std::int64_t stage_evaluation(const ModelCost& model, const layout::StageBlocks& stage,
                              const std::vector<UnitBytes>& units) {
  std::int64_t layers = 0, end = model.hidden();
  bool has_end = false;  // blocks after the layers, which form one unit
  for (const BlockId& block : stage.blocks) {
    const std::int64_t bytes = model.block(block).evaluation();
    if (block.kind == BlockKind::kLayer) {
      layers = std::max(layers, bytes);
    } else if (block.kind != BlockKind::kEmbedding) {
      end += bytes;
      has_end = true;
    }
  }
  // A normed state that is sent is converted to the dtype of messages.
  const bool sends_normed = stage.has(BlockKind::kFinalNorm) && !stage.has(BlockKind::kHead);
  if (sends_normed && model.sequences().tokens().converted > 0) end += model.hidden();
  const auto largest = [&](std::ptrdiff_t first, std::ptrdiff_t last) {
    std::int64_t bytes = 0;
    for (; first < last; ++first) bytes = std::max(bytes, units[static_cast<std::size_t>(first)].forward);
    return bytes;
  };
  const std::ptrdiff_t before = stage.has(BlockKind::kEmbedding) ? 1 : 0, all = std::ssize(units);
  const std::ptrdiff_t layers_end = std::max(before, all - (has_end ? 1 : 0));
  if (stage.layers().size() > 0) layers += largest(before, std::min(layers_end, all));
  if (has_end) return std::max(layers, end + largest(layers_end, all));
  // Inputs of a stage without embedding count as those of one.
  return std::max(
      layers, end + model.block({BlockKind::kEmbedding}).evaluation() + largest(0, std::min(before, all)));
}

std::int64_t message_bytes(const ModelCost& model, std::int64_t states) { return states * model.hidden(); }

}  // namespace colonnade::cost
