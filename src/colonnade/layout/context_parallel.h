// Context parallelism: the tokens of each rank and the communication of each attention layer. Plain
// arithmetic. Source: Megatron's core/utils.py (get_batch_on_this_cp_rank); Brandon et al. 2023 (striped,
// balanced rings); Liu et al. 2023 (ring attention); Jacobs et al. 2023 (Ulysses).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "colonnade/config/parallel.h"

namespace colonnade::layout {

/// Span of tokens [begin, begin + length) of a sequence.
struct TokenSpan {
  std::int64_t begin = 0, length = 0;
  friend bool operator==(const TokenSpan&, const TokenSpan&) = default;
};

/// Chunks of a sequence on rank r of k, in local order: r and 2k-1-r of 2k equal chunks, which balances
/// causal attention. One rank holds the full sequence. Throws Error unless 2k divides `length`.
std::vector<TokenSpan> context_chunks(std::int64_t length, int rank, int ranks);

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

/// Sequence shard of a rank between layers: of the concatenated chunks of its context rank one of `parts`
/// equal shards (tensor ranks with sequence parallelism).
struct SequenceShard {
  int context = 0, contexts = 1;
  int part = 0, parts = 1;
  [[nodiscard]] int ranks() const { return contexts * parts; }
  /// Token spans of a sequence of `length` tokens, in local order; one or two.
  [[nodiscard]] std::vector<TokenSpan> chunks(std::int64_t length) const;
};

/// Context parallelism of one layer: all-to-all over `heads` adjacent ranks (Ulysses: fewer heads over a
/// longer part of the sequence), then a p2p ring or all-gather over `ring` of these groups. heads * ring =
/// cp.
struct LayerContextParallel {
  int heads = 1, ring = 1;
  bool gathers = false;  ///< all-gather of keys and values over `ring` instead of p2p
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
