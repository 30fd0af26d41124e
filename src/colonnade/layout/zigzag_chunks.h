// Zigzag chunks of context parallelism: the tokens of a sequence that each rank holds.
// Source: Megatron's core/utils.py (get_batch_on_this_cp_rank); Brandon et al. 2023 (striped, balanced
// rings).
#pragma once

#include <cstdint>
#include <vector>

namespace colonnade::layout {

/// Span of tokens [begin, begin + length) of a sequence.
struct TokenSpan {
  std::int64_t begin = 0, length = 0;
  friend bool operator==(const TokenSpan&, const TokenSpan&) = default;
};

/// Chunks of a sequence on rank r of k, in local order: r and 2k-1-r of 2k equal chunks, which balances
/// causal attention. One rank holds the full sequence. Throws Error unless 2k divides `length`.
std::vector<TokenSpan> context_chunks(std::int64_t length, int rank, int ranks);

/// Sequence shard of a rank between layers: of the concatenated chunks of its context rank one of `parts`
/// equal shards (tensor ranks with sequence parallelism).
struct SequenceShard {
  int context = 0, contexts = 1;
  int part = 0, parts = 1;
  [[nodiscard]] int ranks() const { return contexts * parts; }
  /// Token spans of a sequence of `length` tokens, in local order; one or two.
  [[nodiscard]] std::vector<TokenSpan> chunks(std::int64_t length) const;
};

}  // namespace colonnade::layout
