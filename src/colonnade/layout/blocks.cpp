// See blocks.h.
#include "colonnade/layout/blocks.h"

#include <algorithm>

namespace colonnade::layout {
namespace {

void append(std::vector<BlockId>& blocks, BlockKind kind, const IndexRange& indices) {
  blocks.reserve(blocks.size() + static_cast<std::size_t>(indices.size()));
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

// Binary searches, since the search for layouts asks millions of times: a stage is a run of model_blocks(),
// whose kinds ascend.
bool StageBlocks::has(BlockKind kind) const {
  return std::ranges::binary_search(blocks, kind, {}, &BlockId::kind);
}

IndexRange StageBlocks::layers() const {
  const auto first = std::ranges::lower_bound(blocks, BlockKind::kLayer, {}, &BlockId::kind);
  const auto last = std::ranges::upper_bound(blocks, BlockKind::kLayer, {}, &BlockId::kind);
  if (first == last) return {};
  return {first->index, first->index + (last - first)};
}

StageBlocks stage_of_layers(const IndexRange& layers) {
  StageBlocks stage;
  append(stage.blocks, BlockKind::kLayer, layers);
  return stage;
}

}  // namespace colonnade::layout
