// See sequence_steps.h.
#include "colonnade/job/sequence_steps.h"

#include <array>
#include <map>

#include "colonnade/data/sequences.h"
#include "colonnade/fault/inject.h"
#include "colonnade/job/token_steps.h"
#include "colonnade/plan/context_groups.h"
#include "colonnade/plan/memory.h"

namespace colonnade::job {
namespace {

data::HostBatch sample(const data::Batches& batches, std::int64_t number) {
  return batches.get(std::array{number}, data::Masks::kLeftOut);
}

/// The tokens of `sequence` out of its sample.
data::HostBatch cut(const data::HostBatch& from, const data::Sequence& sequence) {
  const auto part = [&](const auto& all) {
    const auto first = all.begin() + sequence.begin;
    return std::decay_t<decltype(all)>(first, first + sequence.length);
  };
  return {.micro_batch = 1,
          .seq = sequence.length,
          .tokens = part(from.tokens),
          .labels = part(from.labels),
          .position_ids = part(from.position_ids),
          .loss_mask = part(from.loss_mask),
          .attention_mask = {},
          .samples = from.samples};
}

}  // namespace

SequenceStep sequence_step(const data::Batches& batches, const config::Run& run, int rank,
                           std::int64_t first) {
  std::vector<data::Sequence> all;  // by number of the sample in the batch
  std::vector<std::int64_t> lengths;
  for (std::int64_t row = 0; row < run.training.global_batch_size; ++row)
    for (data::Sequence sequence : data::sequences(sample(batches, first + row))) {
      sequence.row = row;
      all.push_back(sequence);
      lengths.push_back(sequence.length);
    }
  const auto groups =
      plan::context_groups(lengths, plan::hybrid_ranks(run.parallel), run.parallel.max_seqlen_per_dp_cp_rank);
  SequenceStep step;
  step.longest_over_mean = groups.longest() / groups.mean();
  std::map<std::int64_t, data::HostBatch> samples;
  for (const plan::SequenceShare& share : groups.of(rank)) {
    const data::Sequence& sequence = all[share.sequence];
    if (!samples.contains(sequence.row)) samples.emplace(sequence.row, sample(batches, first + sequence.row));
    step.microbatches.push_back({cut(samples.at(sequence.row), sequence), rank - share.first, share.ranks});
  }
  return step;
}

tensor::Batch sequence_batch(SharedSequence sequence, int parts) {
  data::HostBatch& host = sequence.whole;
  host.seq = plan::filled_length(host.seq, sequence.ranks, parts);
  const auto filled = static_cast<std::size_t>(host.seq);
  host.tokens.resize(filled), host.labels.resize(filled), host.loss_mask.resize(filled);
  tensor::Batch batch =
      context_part(to_batch(std::move(host), /*default_positions=*/true), sequence.rank, sequence.ranks);
  batch.set_context_ranks(sequence.ranks);
  return batch;
}

pipeline::Steps sequence_steps(const Job& job, std::shared_ptr<const SequenceStep> step) {
  pipeline::Steps steps;
  steps.schedule = std::make_shared<const plan::Schedule>(
      plan::schedule_of(job.run, static_cast<int>(step->microbatches.size())));
  steps.batch = [step, parts = plan::sequence_parts(job.run.parallel)](int microbatch) {
    fault::point("forward");
    return sequence_batch(step->microbatches.at(static_cast<std::size_t>(microbatch)), parts);
  };
  steps.loss = [](const at::Tensor& output, const tensor::Batch& batch) {
    return token_loss(output, batch, /*per_token=*/true);
  };
  return steps;
}

}  // namespace colonnade::job
