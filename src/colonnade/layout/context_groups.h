// Hybrid context parallelism: the context-parallel group of each sequence of a batch, sized by its length so
// that the ranks' attention work is balanced. Plain arithmetic, repeated for every batch. Source: Megatron's
// core/pipeline_parallel/hybrid_cp_schedule.py; Ge et al. 2025 (ByteScale).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "colonnade/config/run.h"

namespace colonnade::layout {

/// Assignment of a sequence to ranks [first, first + ranks); `ranks` is a power of two that divides `first`.
struct SequenceAssignment {
  std::size_t sequence = 0;  ///< index in the batch
  int first = 0, ranks = 1;
};

struct ContextGroups {
  std::vector<SequenceAssignment> shares;  ///< in execution order: larger groups first
  std::vector<double> work;                ///< causal attention pairs per rank until it is done, with waits
  [[nodiscard]] double longest() const;
  [[nodiscard]] double mean() const;
  /// Assignments of a rank, in execution order. All ranks of an aligned block of g ranks begin with the same
  /// assignments of g or more ranks, so the ranks of a group reach them together under one schedule.
  [[nodiscard]] std::vector<SequenceAssignment> of(int rank) const;
  /// The same as micro-batches: sequences of one rank share one while together they have at most `tokens`
  /// tokens (0: every sequence has its own). First fit in execution order.
  [[nodiscard]] std::vector<std::vector<SequenceAssignment>> microbatches(
      int rank, const std::vector<std::int64_t>& lengths, std::int64_t tokens) const;
  /// Maximum number of micro-batches on a rank.
  [[nodiscard]] int most(const std::vector<std::int64_t>& lengths, std::int64_t tokens) const;
};

/// Causal attention pairs (query, key) of a sequence of `length` tokens.
double attention_pairs(std::int64_t length);

/// Groups of a batch. A group has the smallest power-of-two size with which each rank holds at most
/// `tokens_per_rank` tokens and works no longer than a perfectly balanced batch would take. Sequences are
/// assigned to the earliest free ranks, larger groups and longer sequences first. Every rank gets a sequence,
/// since no sequence has a smaller share of the ranks than of the work. Throws Error unless `ranks` is a
/// power of two that can hold the longest sequence.
ContextGroups context_groups(const std::vector<std::int64_t>& lengths, int ranks,
                             std::int64_t tokens_per_rank);

/// Groups of the same batch with one size: the smallest that holds the longest sequence. Sequences are packed
/// in order into micro-batches of at most tokens_per_rank * size tokens, which are assigned to the groups
/// round-robin, as in Megatron's dp_balanced packing. Throws like context_groups.
ContextGroups equal_context_groups(const std::vector<std::int64_t>& lengths, int ranks,
                                   std::int64_t tokens_per_rank);

/// Padded length of a sequence on `ranks` context ranks: two equal chunks per rank (context_chunks) if there
/// are several, and an equal shard of each rank's tokens per tensor rank (`parts`).
std::int64_t padded_length(std::int64_t length, int ranks, int parts);

/// Tokens of a micro-batch of several sequences of one rank: at most --max-seqlen-per-dp-cp-rank and a
/// sample, with pipeline parallelism few enough that each rank keeps about four micro-batches per stage; 0
/// where such a micro-batch would change what is computed (config::Model::sums_over_sequences).
std::int64_t shared_microbatch_tokens(const config::Run& run);

/// Ranks that share a batch under --hybrid-context-parallel: data x context parallel size.
int hybrid_ranks(const config::Parallel& parallel);
/// Tensor ranks that shard a sequence: the tensor size with sequence parallelism, else 1.
int sequence_shards(const config::Parallel& parallel);

/// Whether all data and context ranks must run the same number of micro-batches per step, because a
/// collective across groups is called per micro-batch or depends on their number: token dispatch, FSDP
/// all-gather and reduce-scatter, interleaved schedules, gradient reduction that overlaps with the last
/// backward pass. Ranks with fewer sequences then run empty micro-batches at the end. Since shared sequences
/// come first, a micro-batch has the same index on all ranks of its group.
bool needs_equal_passes(const config::Run& run);
/// Number of micro-batches per rank: at least `most`, rounded up to what the schedule supports.
int equal_passes(const config::Run& run, int most);

/// Run with a fixed context size that stands for a --hybrid-context-parallel run in memory and time
/// estimates: every sample is one sequence on the fewest ranks that hold it with --max-seqlen-per-dp-cp-rank
/// tokens each. Other runs are returned unchanged.
config::Run with_fixed_context_size(config::Run run);

/// Text about a --hybrid-context-parallel run: the assumption of with_fixed_context_size, and the load
/// imbalance for samples packed from sequences of S, S / 2, ... S / 64 tokens in turn.
std::string hybrid_context_text(const config::Run& run);

}  // namespace colonnade::layout
