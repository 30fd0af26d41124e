// See sequence_steps.h.
#include "colonnade/job/sequence_steps.h"

#include <array>
#include <map>

#include "colonnade/cost/memory.h"
#include "colonnade/data/samples/gpt/sequences.h"
#include "colonnade/fault/inject.h"
#include "colonnade/job/token_steps.h"
#include "colonnade/layers/prediction.h"
#include "colonnade/layout/context_groups.h"

namespace colonnade::job {
namespace {

data::HostBatch sample(const data::Batches& batches, std::int64_t number) {
  return batches.get(std::array{number}, data::Masks::kLeftOut);
}

/// The tokens of `sequence` out of its sample.
data::HostBatch cut(const data::HostBatch& from, const data::Sequence& sequence) {
  const auto part = [&](const auto& all) {
    if (all.empty()) return all;
    const auto first = all.begin() + sequence.begin;
    return std::decay_t<decltype(all)>(first, first + sequence.length);
  };
  return {.micro_batch = 1,
          .seq = sequence.length,
          .tokens = part(from.tokens),
          .labels = part(from.labels),
          .position_ids = {},  // they count from its beginning
          .loss_mask = part(from.loss_mask),
          .attention_mask = {},
          .samples = from.samples};
}

/// What sums over `depths` further tokens of a sample are divided by.
std::vector<double> further_of(const data::HostBatch& sample, std::int64_t depths) {
  std::vector<double> counts;
  if (depths == 0) return counts;
  tensor::Batch whole = to_batch(sample);
  put_further_per_token(whole, depths);
  for (std::int64_t k = 1; k <= depths; ++k)
    counts.push_back(whole.at(layers::Ahead::count_name(k)).item<double>());
  return counts;
}

struct Sample {
  data::HostBatch whole;
  std::vector<double> further;
};

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
  const auto groups = layout::context_groups(lengths, layout::hybrid_ranks(run.parallel),
                                             run.parallel.max_seqlen_per_dp_cp_rank);
  SequenceStep step;
  step.longest_over_mean = groups.longest() / groups.mean();
  const std::int64_t tokens = run.training.seq_length, depths = run.model.mtp_num_layers;
  std::map<std::int64_t, Sample> samples;
  for (const layout::SequenceShare& share : groups.of(rank)) {
    const data::Sequence& sequence = all[share.sequence];
    if (!samples.contains(sequence.row)) {
      data::HostBatch whole = sample(batches, first + sequence.row);
      std::vector<double> further = further_of(whole, depths);
      samples.emplace(sequence.row, Sample{std::move(whole), std::move(further)});
    }
    const Sample& of = samples.at(sequence.row);
    step.microbatches.push_back({.whole = cut(of.whole, sequence),
                                 .rank = rank - share.first,
                                 .ranks = share.ranks,
                                 .begin = sequence.begin,
                                 .sample = tokens,
                                 .further = of.further});
  }
  const SharedSequence none{.whole = {.micro_batch = 1, .samples = {first}},
                            .sample = tokens,
                            .further = std::vector<double>(static_cast<std::size_t>(depths), 0)};
  if (layout::counts_on_equal_passes(run))
    step.microbatches.resize(static_cast<std::size_t>(layout::equal_passes(run, groups.most())), none);
  return step;
}

tensor::Batch sequence_batch(SharedSequence sequence, int parts) {
  data::HostBatch& host = sequence.whole;
  const tensor::Share share{
      .ranks = sequence.ranks, .tokens = host.seq, .begin = sequence.begin, .sample = sequence.sample};
  host.seq = layout::filled_length(std::max<std::int64_t>(host.seq, 1), sequence.ranks, parts);
  const auto filled = static_cast<std::size_t>(host.seq);
  if (host.loss_mask.empty()) host.loss_mask.assign(host.tokens.size(), 1.0F);
  host.tokens.resize(filled), host.labels.resize(filled), host.loss_mask.resize(filled);
  tensor::Batch whole = to_batch(std::move(host));
  const std::int64_t depths = std::ssize(sequence.further);
  layers::Ahead::put_into(whole, depths);
  for (std::int64_t k = 1; k <= depths; ++k)
    whole.set(layers::Ahead::count_name(k),
              at::full({}, sequence.further[static_cast<std::size_t>(k - 1)], at::kFloat));
  tensor::Batch batch = context_part(std::move(whole), sequence.rank, sequence.ranks, depths);
  batch.set_share(share);
  return batch;
}

pipeline::Steps sequence_steps(const Job& job, std::shared_ptr<const SequenceStep> step) {
  pipeline::Steps steps;
  steps.schedule = std::make_shared<const schedule::Schedule>(
      cost::schedule_of(job.run, static_cast<int>(step->microbatches.size())));
  steps.batch = [step, parts = layout::sequence_parts(job.run.parallel)](int microbatch) {
    fault::point("forward");
    return sequence_batch(step->microbatches.at(static_cast<std::size_t>(microbatch)), parts);
  };
  steps.loss = [](const at::Tensor& output, const tensor::Batch& batch) {
    return token_loss(output, batch, /*per_token=*/true);
  };
  return steps;
}

}  // namespace colonnade::job
