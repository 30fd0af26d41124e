// See blocks.h.
#include "colonnade/layout/blocks.h"

#include <algorithm>

namespace colonnade::layout {
namespace {

void append(std::vector<BlockId>& blocks, BlockKind kind, const IndexRange& indices) {
  for (const std::int64_t index : indices) blocks.push_back({kind, index});
}

}  // namespace

std::vector<BlockId> model_blocks(const config::Model& model) {
  std::vector<BlockId> blocks{{BlockKind::kEmbedding}};
  append(blocks, BlockKind::kLayer, {0, model.total_layers()});
  blocks.push_back({BlockKind::kFinalNorm});
  append(blocks, BlockKind::kMtpLayer, {0, model.mtp_num_layers});
  blocks.push_back({BlockKind::kHead});
  return blocks;
}

bool StageBlocks::has(BlockKind kind) const {
  return std::any_of(blocks.begin(), blocks.end(), [kind](const BlockId& id) { return id.kind == kind; });
}

IndexRange StageBlocks::layers() const {
  const auto is_layer = [](const BlockId& id) { return id.kind == BlockKind::kLayer; };
  const auto first = std::find_if(blocks.begin(), blocks.end(), is_layer);
  if (first == blocks.end()) return {};
  const auto last = std::find_if_not(first, blocks.end(), is_layer);
  return {first->index, first->index + (last - first)};
}

StageBlocks stage_of_layers(const IndexRange& layers) {
  StageBlocks stage;
  append(stage.blocks, BlockKind::kLayer, layers);
  return stage;
}

}  // namespace colonnade::layout
