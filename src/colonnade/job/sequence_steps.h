// The data step of --hybrid-context-parallel: the samples of a global batch as the sequences that they are
// packed of, each a micro-batch of its own on the ranks that layout::context_groups chooses for it. The sums
// over the batch are those of the samples with masks of documents, in another order.
// Source: Megatron's core/pipeline_parallel/hybrid_cp_schedule.py.
#pragma once

#include <memory>
#include <vector>

#include "colonnade/data/batches.h"
#include "colonnade/job/job.h"

namespace colonnade::job {

/// A sequence, whole, and which of its ranks this one is. One without tokens is there for ranks that have
/// fewer sequences than others and take part in what all of them do (layout::equal_passes).
struct SharedSequence {
  data::HostBatch whole;  ///< of one row
  int rank = 0, ranks = 1;
  std::int64_t begin = 0;   ///< its place in its sample
  std::int64_t sample = 1;  ///< tokens of the sample
  /// What sums over each further token are divided by, those of the whole sample (put_further_per_token).
  std::vector<double> further = {};
};

/// What one rank computes of a global batch.
struct SequenceStep {
  std::vector<SharedSequence> microbatches;  ///< in order; one at least (layout::context_groups)
  /// Pairs of a query and an earlier key on the rank that has most, over the mean of all ranks.
  double longest_over_mean = 1;
};

/// Of the batch that begins at sample `first`, for rank `rank` of the data and context ranks. Every rank
/// reads all samples and comes to the same division: a function of the settings, the seed and `first`;
/// nothing is sent. Safe to call from many threads.
SequenceStep sequence_step(const data::Batches& batches, const config::Run& run, int rank,
                           std::int64_t first);

/// This rank's part: filled up to equal chunks (layout::filled_length) with tokens without loss, which no
/// token of the sequence sees, and cut by context_part. Further tokens count as parts of their sample's.
tensor::Batch sequence_batch(SharedSequence sequence, int parts);

/// Steps with as many micro-batches as `step` has on this rank. Ranks of one pipeline have the same ones.
pipeline::Steps sequence_steps(const Job& job, std::shared_ptr<const SequenceStep> step);

}  // namespace colonnade::job
