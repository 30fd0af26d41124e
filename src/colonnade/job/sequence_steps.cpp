// See sequence_steps.h.
#include "colonnade/job/sequence_steps.h"

#include <algorithm>
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
  return batches.get(std::array{number});
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
          .cu_seqlens = {},
          .samples = from.samples};
}

template <typename T>
void append_values(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

/// Appends a row of one sequence to a row of sequences, whose positions and bounds are kept.
void append_sequence(data::HostBatch& row, const data::HostBatch& sequence) {
  const auto add_bounds = [&](std::int64_t begin, std::int64_t length) {
    for (std::int64_t i = 0; i < length; ++i) row.position_ids.push_back(i);
    row.cu_seqlens.push_back(begin + length);
  };
  if (row.cu_seqlens.empty()) {
    row.cu_seqlens.push_back(0);
    add_bounds(0, row.seq);
  }
  add_bounds(row.seq, sequence.seq);
  if (row.loss_mask.empty() != sequence.loss_mask.empty()) {
    row.loss_mask.resize(row.tokens.size(), 1.0F);
    row.loss_mask.resize(row.tokens.size() + sequence.tokens.size(), 1.0F);
    std::ranges::copy(sequence.loss_mask, row.loss_mask.begin() + row.seq);
  } else {
    append_values(row.loss_mask, sequence.loss_mask);
  }
  append_values(row.tokens, sequence.tokens);
  append_values(row.labels, sequence.labels);
  row.seq += sequence.seq;
}

struct Sample {
  data::HostBatch full;
  std::vector<double> loss_counts;
};

/// Samples of a step, read once.
class Samples {
 public:
  Samples(const data::Batches& batches, const config::Model& model, std::int64_t first)
      : batches_(batches), model_(model), first_(first) {}
  const Sample& operator[](std::int64_t row) {
    if (!read_.contains(row)) {
      data::HostBatch full = sample(batches_, first_ + row);
      std::vector<double> counts = counts_ahead(model_, full);
      read_.emplace(row, Sample{std::move(full), std::move(counts)});
    }
    return read_.at(row);
  }

 private:
  const data::Batches& batches_;
  const config::Model& model_;
  std::int64_t first_;
  std::map<std::int64_t, Sample> read_;
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
  const std::int64_t tokens = run.training.seq_length, shared = layout::shared_microbatch_tokens(run);
  Samples samples(batches, run.model, first);
  for (const auto& microbatch : groups.microbatches(rank, lengths, shared)) {
    const layout::SequenceAssignment& share = microbatch.front();
    const data::PackedSequence& sequence = all[share.sequence];
    const Sample& packed = samples[sequence.row];
    MicrobatchShard shard{.full = slice(packed.full, sequence),
                          .rank = rank - share.first,
                          .ranks = share.ranks,
                          .begin = sequence.begin,
                          .sample = tokens,
                          .loss_counts = packed.loss_counts};
    for (std::size_t i = 1; i < microbatch.size(); ++i) {
      const data::PackedSequence& other = all[microbatch[i].sequence];
      append_sequence(shard.full, slice(samples[other.row].full, other));
    }
    step.microbatches.push_back(std::move(shard));
  }
  const MicrobatchShard none{.full = {.micro_batch = 1, .samples = {first}},
                             .sample = tokens,
                             .loss_counts = counts_ahead(run.model, {})};
  if (layout::needs_equal_passes(run))
    step.microbatches.resize(
        static_cast<std::size_t>(layout::equal_passes(run, groups.most(lengths, shared))), none);
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
  if (!host.cu_seqlens.empty()) {
    host.position_ids.resize(padded);
    if (host.cu_seqlens.back() < host.seq) host.cu_seqlens.push_back(host.seq);
  }
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
