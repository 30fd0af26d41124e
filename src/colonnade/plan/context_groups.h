// How many ranks should share each sequence of a batch, when lengths differ: a short one on one rank, a long
// one on many, all ranks equally busy. Plain arithmetic; decided anew for each batch. Source: Megatron's
// core/pipeline_parallel/hybrid_cp_schedule.py; Ge et al. 2025 (ByteScale).
#pragma once

#include <cstdint>
#include <vector>

namespace colonnade::plan {

/// One sequence on ranks [first, first + ranks), a power of two of them, `first` a multiple of it.
struct SequenceShare {
  std::size_t sequence = 0;  ///< its number in the batch
  int first = 0, ranks = 1;
};

struct ContextGroups {
  std::vector<SequenceShare> shares;  ///< in the order in which they are computed: larger groups first
  std::vector<double> work;  ///< pairs of a query and an earlier key until each rank is done, waits included
  [[nodiscard]] double longest() const;
};

/// Pairs of a query and a key that is not later, of a sequence of `length` tokens.
double attention_pairs(std::int64_t length);

/// A group is the smallest power of two of ranks of which each holds at most `tokens_per_rank` of the
/// sequence and does not compute longer than the batch would take if it were divided evenly. Sequences then
/// go, larger groups and longer sequences first, to the ranks that are free first. Throws Error unless
/// `ranks` is a power of two that can hold the longest sequence.
ContextGroups context_groups(const std::vector<std::int64_t>& lengths, int ranks,
                             std::int64_t tokens_per_rank);

/// The same batch with one group size: the smallest that holds the longest sequence. Sequences are packed in
/// their order into micro-batches of at most tokens_per_rank * size tokens, which go round the groups, as
/// Megatron's dp_balanced packing does. Throws as context_groups.
ContextGroups equal_context_groups(const std::vector<std::int64_t>& lengths, int ranks,
                                   std::int64_t tokens_per_rank);

}  // namespace colonnade::plan
