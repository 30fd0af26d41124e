// The data step of --hybrid-context-parallel: splits the packed samples of a global batch into their
// sequences, on the ranks that layout::context_groups chooses for each. A sequence of several ranks is a
// micro-batch, short sequences of one rank share one. The sums over the batch equal those of packed samples,
// added in another order.
// Source: Megatron's core/pipeline_parallel/hybrid_cp_schedule.py.
#pragma once

#include <memory>
#include <vector>

#include "colonnade/data/batches.h"
#include "colonnade/job/job.h"

namespace colonnade::job {

/// A full sequence and this rank's position among the ranks that share it, or several sequences of one rank
/// with their bounds (layout::shared_microbatch_tokens). An empty one keeps ranks with fewer sequences in
/// step with collectives of all ranks (layout::equal_passes).
struct MicrobatchShard {
  data::HostBatch full;  ///< one row; `samples` of the first sequence
  int rank = 0, ranks = 1;
  std::int64_t begin = 0;   ///< first token of the first sequence in its sample
  std::int64_t sample = 1;  ///< tokens of the sample
  /// Loss counts by depth of the full sample (counts_ahead).
  std::vector<double> loss_counts = {};
};

/// One rank's micro-batches of a global batch.
struct SequenceStep {
  std::vector<MicrobatchShard> microbatches;  ///< in order; at least one (layout::context_groups)
  /// Attention pairs (query, earlier key): maximum over ranks / mean over ranks.
  double longest_over_mean = 1;
};

/// The step of data and context rank `rank` for the global batch of `samples_read` samples that begins at
/// sample `first`. Every rank reads all samples and computes the same distribution from the settings, the
/// seed and `first`, so nothing is sent. Thread-safe.
SequenceStep sequence_step(const data::Batches& batches, const config::Run& run, int rank, std::int64_t first,
                           std::int64_t samples_read);

/// This rank's shard of a sequence: padded to equal chunks (layout::padded_length) with tokens that have no
/// loss and that no token of the sequence attends to, then sharded by context_shard. Losses on tokens
/// after the next one keep the weights of the full sample.
tensor::Batch sequence_batch(MicrobatchShard sequence, int parts);

/// Steps over the micro-batches of `step`. All ranks of one pipeline have the same ones.
pipeline::Steps sequence_steps(const Job& job, std::shared_ptr<const SequenceStep> step);

}  // namespace colonnade::job
