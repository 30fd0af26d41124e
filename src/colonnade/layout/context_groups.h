// How many ranks should share each sequence of a batch, when lengths differ: a short one on one rank, a long
// one on many, all ranks equally busy. Plain arithmetic; decided anew for each batch. Source: Megatron's
// core/pipeline_parallel/hybrid_cp_schedule.py; Ge et al. 2025 (ByteScale).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "colonnade/config/run.h"

namespace colonnade::layout {

/// One sequence on ranks [first, first + ranks), a power of two of them, `first` a multiple of it.
struct SequenceShare {
  std::size_t sequence = 0;  ///< its number in the batch
  int first = 0, ranks = 1;
};

struct ContextGroups {
  std::vector<SequenceShare> shares;  ///< in the order in which they are computed: larger groups first
  std::vector<double> work;  ///< pairs of a query and an earlier key until each rank is done, waits included
  [[nodiscard]] double longest() const;
  [[nodiscard]] double mean() const;
  /// What a rank computes, in order. The ranks of an aligned block of g list the same shares of g ranks and
  /// more first: whoever goes through its list, forward and backward by one schedule, meets the others.
  [[nodiscard]] std::vector<SequenceShare> of(int rank) const;
  /// Sequences of the rank that has most.
  [[nodiscard]] int most() const;
};

/// Pairs of a query and a key that is not later, of a sequence of `length` tokens.
double attention_pairs(std::int64_t length);

/// A group is the smallest power of two of ranks of which each holds at most `tokens_per_rank` of the
/// sequence and does not compute longer than the batch would take if it were divided evenly. Sequences then
/// go, larger groups and longer sequences first, to the ranks that are free first. Every rank gets one: no
/// sequence takes a smaller part of the ranks than of the work, so that all groups together are as many as
/// the ranks, and while some are free aligned blocks of them are. Throws Error unless `ranks` is a power of
/// two that can hold the longest sequence.
ContextGroups context_groups(const std::vector<std::int64_t>& lengths, int ranks,
                             std::int64_t tokens_per_rank);

/// The same batch with one group size: the smallest that holds the longest sequence. Sequences are packed in
/// their order into micro-batches of at most tokens_per_rank * size tokens, which go round the groups, as
/// Megatron's dp_balanced packing does. Throws as context_groups.
ContextGroups equal_context_groups(const std::vector<std::int64_t>& lengths, int ranks,
                                   std::int64_t tokens_per_rank);

/// Tokens to which a sequence is filled up that `ranks` ranks share: two equal chunks for each
/// (context_chunks) unless there is one, and of what a rank holds an equal part for each of `parts` tensor
/// ranks.
std::int64_t filled_length(std::int64_t length, int ranks, int parts);

/// What divides the work of a run with --hybrid-context-parallel: its data and context ranks, and how many
/// tensor ranks share what one of them holds.
int hybrid_ranks(const config::Parallel& parallel);
int sequence_parts(const config::Parallel& parallel);

/// Whether something beside the exchanges of a sequence's own ranks is called over data and context ranks
/// once a pass, or ordered by their number: exchanges with experts, gathers and sums of sharded blocks,
/// schedules of several virtual stages, sums of gradients that begin in the last backward pass. Then all
/// ranks of a step run equally many passes, of which the last ones may have no sequence: since what several
/// ranks share comes first, a pass has the same number on all of them, and they go through one program.
bool counts_on_equal_passes(const config::Run& run);
/// As many as `most` needs and the schedule takes.
int equal_passes(const config::Run& run, int most);

/// The run whose ranks share all sequences alike and hold as many tokens at most as those of `run`, which has
/// --hybrid-context-parallel: the fewest ranks for a whole sample share each, of --max-seqlen-per-dp-cp-rank
/// tokens a rank. Memory and time of `run` are counted as its: every sample one sequence. Others as they are.
config::Run with_equal_groups(config::Run run);

/// For a person, of a run with --hybrid-context-parallel: what with_equal_groups assumes, and the work of the
/// busiest rank were the samples of a batch packed of sequences of S, S / 2, ... S / 64 tokens in turn.
std::string hybrid_text(const config::Run& run);

}  // namespace colonnade::layout
