// See context_parallel.h.
#include "colonnade/layout/context_parallel.h"

#include <algorithm>

namespace colonnade::layout {

AttentionBlock attention_block(std::int64_t length, int rank, int owner, int ranks) {
  const std::vector<TokenSpan> own = context_chunks(length, rank, ranks);
  const std::vector<TokenSpan> theirs = context_chunks(length, owner, ranks);
  const std::int64_t size = length / (2 * std::int64_t{ranks});
  if (owner == rank) return {0, 0, 2 * size, own, own, true};
  if (owner < rank) return {0, 0, size, own, {theirs[0]}, false};
  return {size, 0, 2 * size, {own[1]}, theirs, false};
}

std::vector<AttentionBlock> remote_attention_blocks(std::int64_t length, int rank, int ranks) {
  const std::vector<TokenSpan> own = context_chunks(length, rank, ranks);
  const std::int64_t size = length / (2 * std::int64_t{ranks});
  const TokenSpan before{0, rank * size}, between{(rank + 1) * size, (2 * ranks - 2 * rank - 2) * size};
  std::vector<AttentionBlock> meetings;
  if (before.length > 0) meetings.push_back({0, 0, before.length, own, {before}, false});
  if (between.length > 0)
    meetings.push_back({size, between.begin, between.length, {own[1]}, {between}, false});
  return meetings;
}

const std::string& layer_cp_comm_type(const config::Parallel& parallel, std::int64_t layer) {
  const auto& kinds = parallel.cp_comm_type;
  return kinds[std::min(static_cast<std::size_t>(layer), kinds.size() - 1)];
}

LayerContextParallel context_layer(const config::Parallel& parallel, std::int64_t layer) {
  const int cp = parallel.context_parallel_size;
  if (layer_cp_comm_type(parallel, layer) != "a2a+p2p") return context_layer(parallel, layer, cp);
  const int heads = parallel.hierarchical_context_parallel_sizes.at(0);
  return {.heads = heads, .ring = cp / heads};
}

LayerContextParallel context_layer(const config::Parallel& parallel, std::int64_t layer, int ranks) {
  const std::string& kind = layer_cp_comm_type(parallel, layer);
  if (kind == "a2a") return {.heads = ranks, .ring = 1};
  return {.heads = 1, .ring = ranks, .gathers = kind == "all_gather"};
}

}  // namespace colonnade::layout
