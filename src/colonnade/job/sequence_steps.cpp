// See sequence_steps.h.
#include "colonnade/job/sequence_steps.h"

#include <array>
#include <map>

#include "colonnade/cost/memory.h"
#include "colonnade/data/samples/gpt/packed_sequences.h"
#include "colonnade/fault/inject.h"
#include "colonnade/job/token_steps.h"
#include "colonnade/layout/context_groups.h"

namespace colonnade::job {
namespace {

data::HostBatch sample(const data::Batches& batches, std::int64_t number) {
  return batches.get(std::array{number}, data::AttentionMasks::kOmitted);
}

/// The tokens of `sequence`, sliced from its sample.
data::HostBatch slice(const data::HostBatch& from, const data::PackedSequence& sequence) {
  const auto range = [&](const auto& all) {
    if (all.empty()) return all;
    const auto first = all.begin() + sequence.begin;
    return std::decay_t<decltype(all)>(first, first + sequence.length);
  };
  return {.micro_batch = 1,
          .seq = sequence.length,
          .tokens = range(from.tokens),
          .labels = range(from.labels),
          .position_ids = {},  // default: counted from the sequence's start
          .loss_mask = range(from.loss_mask),
          .attention_mask = {},
          .samples = from.samples};
}

struct Sample {
  data::HostBatch full;
  std::vector<double> loss_counts;
};

}  // namespace

SequenceStep sequence_step(const data::Batches& batches, const config::Run& run, int rank, std::int64_t first,
                           std::int64_t samples_read) {
  std::vector<data::PackedSequence> all;  // ordered by sample
  std::vector<std::int64_t> lengths;
  for (std::int64_t row = 0; row < samples_read; ++row)
    for (data::PackedSequence sequence : data::packed_sequences(sample(batches, first + row))) {
      sequence.row = row;
      all.push_back(sequence);
      lengths.push_back(sequence.length);
    }
  const auto groups = layout::context_groups(lengths, layout::hybrid_ranks(run.parallel),
                                             run.parallel.max_seqlen_per_dp_cp_rank);
  SequenceStep step;
  step.longest_over_mean = groups.longest() / groups.mean();
  const std::int64_t tokens = run.training.seq_length;
  std::map<std::int64_t, Sample> samples;
  for (const layout::SequenceAssignment& share : groups.of(rank)) {
    const data::PackedSequence& sequence = all[share.sequence];
    if (!samples.contains(sequence.row)) {
      data::HostBatch full = sample(batches, first + sequence.row);
      std::vector<double> counts = counts_ahead(run.model, full);
      samples.emplace(sequence.row, Sample{std::move(full), std::move(counts)});
    }
    const Sample& packed = samples.at(sequence.row);
    step.microbatches.push_back({.full = slice(packed.full, sequence),
                                 .rank = rank - share.first,
                                 .ranks = share.ranks,
                                 .begin = sequence.begin,
                                 .sample = tokens,
                                 .loss_counts = packed.loss_counts});
  }
  const MicrobatchShard none{.full = {.micro_batch = 1, .samples = {first}},
                             .sample = tokens,
                             .loss_counts = counts_ahead(run.model, {})};
  if (layout::needs_equal_passes(run))
    step.microbatches.resize(static_cast<std::size_t>(layout::equal_passes(run, groups.most())), none);
  return step;
}

tensor::Batch sequence_batch(MicrobatchShard sequence, int parts) {
  data::HostBatch& host = sequence.full;
  const tensor::SequenceShare share{
      .ranks = sequence.ranks, .tokens = host.seq, .begin = sequence.begin, .sample = sequence.sample};
  host.seq = layout::padded_length(std::max<std::int64_t>(host.seq, 1), sequence.ranks, parts);
  const auto padded = static_cast<std::size_t>(host.seq);
  if (host.loss_mask.empty()) host.loss_mask.assign(host.tokens.size(), 1.0F);
  host.tokens.resize(padded), host.labels.resize(padded), host.loss_mask.resize(padded);
  tensor::Batch full = to_batch(std::move(host));
  put_counts_ahead(full, sequence.loss_counts);
  tensor::Batch batch =
      context_shard(std::move(full), sequence.rank, sequence.ranks, std::ssize(sequence.loss_counts));
  batch.set_share(share);
  return batch;
}

pipeline::Steps sequence_steps(const Job& job, std::shared_ptr<const SequenceStep> step) {
  pipeline::Steps steps;
  steps.schedule = std::make_shared<const schedule::Schedule>(
      cost::schedule_of(job.run, static_cast<int>(step->microbatches.size())));
  steps.batch = [step, parts = layout::sequence_shards(job.run.parallel)](int microbatch) {
    fault::point("forward");
    return sequence_batch(step->microbatches.at(static_cast<std::size_t>(microbatch)), parts);
  };
  steps.loss = [](const at::Tensor& output, const tensor::Batch& batch) {
    return token_loss(output, batch, /*per_token=*/true);
  };
  return steps;
}

}  // namespace colonnade::job
