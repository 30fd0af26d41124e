// How context ranks share a sequence: which of its tokens each holds, and how the attention of a layer brings
// queries to keys. Plain arithmetic.
// Source: Megatron's core/utils.py (get_batch_on_this_cp_rank); Brandon et al. 2023 (striped, balanced
// rings); Liu et al. 2023 (ring attention); Jacobs et al. 2023 (Ulysses).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "colonnade/config/parallel.h"

namespace colonnade::layout {

/// Tokens [begin, begin + length) of a sequence.
struct Chunk {
  std::int64_t begin = 0, length = 0;
  friend bool operator==(const Chunk&, const Chunk&) = default;
};

/// What rank r of k holds of a sequence, in its order: of 2k equal chunks r and 2k-1-r, so that all ranks
/// have as many pairs of a query and an earlier key. With one rank the whole. Throws Error unless 2k divides
/// `length`.
std::vector<Chunk> context_chunks(std::int64_t length, int rank, int ranks);

/// Queries of a rank, from row `first_query` on, and rows [first_key, first_key + keys) of a buffer of keys,
/// with what both are of the sequence.
struct Meeting {
  std::int64_t first_query = 0, first_key = 0, keys = 0;
  std::vector<Chunk> query_chunks, key_chunks;
  bool causal = false;  ///< some keys are later than some queries
};
/// Of rank r's queries with the keys of `owner` as that one holds them, those pairs of chunks left out in
/// which every key is later.
Meeting meeting(std::int64_t length, int rank, int owner, int ranks);
/// Of rank r's queries with all keys in the order of the sequence, its own ones left out; none, one or two.
std::vector<Meeting> meetings_with_others(std::int64_t length, int rank, int ranks);
/// In a ring: whether a rank sends to the next one before it receives. Neighbours take turns.
inline bool sends_first(int rank) { return rank % 2 == 0; }

/// What a rank holds of each sequence between layers: the chunks of its context rank, laid one behind the
/// other, and of them one of `parts` equal parts (the tensor ranks, with sequence parallelism).
struct SequencePart {
  int context = 0, contexts = 1;
  int part = 0, parts = 1;
  [[nodiscard]] int ranks() const { return contexts * parts; }
  /// Of a sequence of `length` tokens in all, in the order of the rank; one or two.
  [[nodiscard]] std::vector<Chunk> chunks(std::int64_t length) const;
};

/// How the context ranks of one layer work together: `heads` neighbours exchange heads for positions, so that
/// each has fewer heads over more of the sequence; what is left of the cut is gone round in rings of `ring`
/// ranks, or gathered. heads * ring = cp.
struct ContextLayer {
  int heads = 1, ring = 1;
  bool gathers = false;  ///< keys and values are gathered over `ring`, not handed on
};

/// The kind that --cp-comm-type names for a layer; those behind the last one are of its kind.
const std::string& context_exchange(const config::Parallel& parallel, std::int64_t layer);
ContextLayer context_layer(const config::Parallel& parallel, std::int64_t layer);
/// The same of sequences that `ranks` share; not of a2a+p2p.
ContextLayer context_layer(const config::Parallel& parallel, std::int64_t layer, int ranks);

/// Elements that a tensor of scores of a block of keys has at most: 256 MiB in fp32.
inline constexpr std::int64_t kPieceOfScores = std::int64_t{1} << 26;
/// Tensors of scores beside each other while a piece of a block goes forward, and backward.
inline constexpr std::int64_t kScoresForward = 2;
constexpr std::int64_t scores_backward(bool capped) { return capped ? 3 : 2; }

}  // namespace colonnade::layout
