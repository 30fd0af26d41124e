// Context parallelism: the blocks of ring attention and the communication of each attention layer. Plain
// arithmetic. Source: Brandon et al. 2023 (striped,
// balanced rings); Liu et al. 2023 (ring attention); Jacobs et al. 2023 (Ulysses).
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "colonnade/config/parallel.h"
#include "colonnade/layout/zigzag_chunks.h"

namespace colonnade::layout {

/// Attention block: a rank's queries from row `first_query` on, against rows [first_key, first_key + keys) of
/// a key buffer, with the tokens of both.
struct AttentionBlock {
  std::int64_t first_query = 0, first_key = 0, keys = 0;
  std::vector<TokenSpan> query_chunks, key_chunks;
  bool causal = false;  ///< some keys are later than some queries
};
/// Block of rank r's queries and the keys of `owner` in its local order, without chunk pairs that the causal
/// mask excludes.
AttentionBlock attention_block(std::int64_t length, int rank, int owner, int ranks);
/// Blocks of rank r's queries and the keys of all other ranks in sequence order: none, one or two.
std::vector<AttentionBlock> remote_attention_blocks(std::int64_t length, int rank, int ranks);
/// Whether a rank in a ring sends before it receives; alternates along the ring.
inline bool sends_first(int rank) { return rank % 2 == 0; }

/// Context parallelism of one layer: all-to-all over `heads` adjacent ranks (Ulysses: fewer heads over a
/// longer part of the sequence), then a p2p ring or all-gather over `ring` of these groups. heads * ring =
/// cp.
struct LayerContextParallel {
  int heads = 1, ring = 1;
  bool gathers = false;  ///< all-gather of keys and values over `ring` instead of p2p
  auto operator<=>(const LayerContextParallel&) const = default;
};

/// --cp-comm-type of a layer; layers beyond the list use its last type.
const std::string& layer_cp_comm_type(const config::Parallel& parallel, std::int64_t layer);
LayerContextParallel context_layer(const config::Parallel& parallel, std::int64_t layer);
/// The same for `ranks` context ranks; not for a2a+p2p.
LayerContextParallel context_layer(const config::Parallel& parallel, std::int64_t layer, int ranks);

/// Maximum number of elements of a block's attention scores: 256 MiB in fp32.
inline constexpr std::int64_t kMaxScoreElements = std::int64_t{1} << 26;
/// Score tensors alive at once in the forward and in the backward of an attention block.
inline constexpr std::int64_t kForwardScoreTensors = 2;
constexpr std::int64_t backward_score_tensors(bool capped) { return capped ? 3 : 2; }

}  // namespace colonnade::layout
