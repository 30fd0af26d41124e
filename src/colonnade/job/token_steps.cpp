// See token_steps.h.
#include "colonnade/job/token_steps.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "colonnade/base/error.h"
#include "colonnade/config/batch_schedule.h"
#include "colonnade/fault/inject.h"
#include "colonnade/layers/mtp.h"
#include "colonnade/layout/context_parallel.h"

namespace colonnade::job {
namespace {

using tensor::Field;

/// A tensor that takes over the vector's memory.
template <typename T>
at::Tensor tensor_of(std::vector<T> values, at::IntArrayRef shape, at::ScalarType type) {
  auto owned = std::make_shared<std::vector<T>>(std::move(values));
  return at::from_blob(
      owned->data(), shape, [owned](void*) {}, at::dtype(type));
}

std::int64_t first_sample(const Job& job, std::int64_t consumed, std::int64_t microbatch, std::int64_t size) {
  return consumed + (microbatch * job.data_ranks() + job.data_rank()) * size;
}

/// Rank among those over which --hybrid-context-parallel distributes a batch.
int data_context_rank(const Job& job) {
  return job.ranks.mesh().index(job.ranks.rank(), layout::data_axes(layout::ParamGroup::kDense));
}

/// This rank's shard of a host batch.
tensor::Batch batch_of(const Job& job, data::HostBatch host) {
  using layout::Axis;
  const std::int64_t mtp_depths = job.run.model.mtp_num_layers;
  tensor::Batch full = to_batch(std::move(host));
  if (job.run.training.calculate_per_token_loss) put_mtp_per_token(full, mtp_depths);
  return context_shard(std::move(full), job.ranks.coord(Axis::kCp), job.ranks.mesh().size(Axis::kCp),
                       mtp_depths);
}

pipeline::Steps steps_with(const Job& job, std::function<tensor::Batch(int)> batch) {
  const bool per_token = job.run.training.calculate_per_token_loss;
  return {.batch = std::move(batch), .loss = [per_token](const at::Tensor& output, const tensor::Batch& b) {
            return token_loss(output, b, per_token);
          }};
}

}  // namespace

tensor::Batch to_batch(data::HostBatch host) {
  const std::int64_t b = host.micro_batch;
  const std::int64_t s = host.seq;
  tensor::Batch batch;
  batch.set(Field::kTokens, tensor_of(std::move(host.tokens), {b, s}, at::kLong));
  batch.set(Field::kLabels, tensor_of(std::move(host.labels), {b, s}, at::kLong));
  batch.set(Field::kLossMask, host.loss_mask.empty()
                                  ? at::ones({b, s}, at::kFloat)
                                  : tensor_of(std::move(host.loss_mask), {b, s}, at::kFloat));
  batch.set(Field::kSamples, tensor_of(std::move(host.samples), {b}, at::kLong));
  if (!host.position_ids.empty())
    batch.set(Field::kPositionIds, tensor_of(std::move(host.position_ids), {b, s}, at::kLong));
  if (host.encoder_seq > 0) {
    const std::int64_t t = host.encoder_seq;
    batch.set(Field::kEncoderTokens, tensor_of(std::move(host.encoder_tokens), {b, t}, at::kLong));
    batch.set(Field::kEncoderPadding,
              tensor_of(std::move(host.encoder_padding), {b, t}, at::kByte).to(at::kBool));
  }
  if (!host.token_types.empty())
    batch.set(Field::kTokenTypes, tensor_of(std::move(host.token_types), {b, s}, at::kLong));
  if (!host.padding.empty())
    batch.set(Field::kPadding, tensor_of(std::move(host.padding), {b, s}, at::kByte).to(at::kBool));
  if (!host.swapped.empty()) batch.set(Field::kSwapped, tensor_of(std::move(host.swapped), {b}, at::kLong));
  if (!host.cu_seqlens.empty()) batch.set_documents({std::move(host.cu_seqlens)});
  return batch;
}

void put_mtp_per_token(tensor::Batch& full, std::int64_t depths) {
  layers::MtpTargets::add_to_batch(full, depths);
  const at::Tensor& mask = full.at(Field::kLossMask);
  for (std::int64_t k = 1; k <= depths; ++k) {
    const tensor::BatchKey count(Field::kLossCount, k);
    full.set(count, full.at(count) * static_cast<double>(mask.numel()) / mask.sum().clamp_min(1));
  }
}

std::vector<double> counts_ahead(const config::Model& model, const data::HostBatch& sample) {
  const std::int64_t depths = model.mtp_num_layers;
  std::vector<double> counts(static_cast<std::size_t>(depths), 0);
  if (depths == 0 || sample.seq == 0) return counts;
  tensor::Batch full = to_batch(sample);
  put_mtp_per_token(full, depths);
  for (std::int64_t k = 1; k <= depths; ++k)
    counts[static_cast<std::size_t>(k - 1)] = full.at({Field::kLossCount, k}).item<double>();
  return counts;
}

void put_counts_ahead(tensor::Batch& full, const std::vector<double>& counts) {
  layers::MtpTargets::add_to_batch(full, std::ssize(counts));
  for (std::int64_t k = 1; k <= std::ssize(counts); ++k)
    full.set({Field::kLossCount, k}, at::full({}, counts[static_cast<std::size_t>(k - 1)], at::kFloat));
}

tensor::Batch context_shard(tensor::Batch full, int rank, int ranks, std::int64_t mtp_depths) {
  if (ranks == 1) return full;
  const at::Tensor& tokens = full.at(Field::kTokens);
  const std::int64_t s = tokens.size(1);
  const std::vector<layout::TokenSpan> chunks = layout::context_chunks(s, rank, ranks);
  if (!full.find(Field::kPositionIds).defined())
    full.set(Field::kPositionIds, at::arange(s, tokens.options()).expand(tokens.sizes()));
  full.set(Field::kLossCount, full.at(Field::kLossMask).sum());
  layers::MtpTargets::add_to_batch(full, mtp_depths);
  for (const tensor::BatchKey& key : full.keys()) {
    if (!key.is_sequence_sharded()) continue;
    const at::Tensor& rows = full.at(key);
    std::vector<at::Tensor> local;
    for (const layout::TokenSpan& chunk : chunks) local.push_back(rows.narrow(1, chunk.begin, chunk.length));
    full.set(key, at::cat(local, 1));
  }
  return full;
}

pipeline::Loss token_loss(const at::Tensor& output, const tensor::Batch& batch, bool per_token) {
  const at::Tensor& mask = batch.at(Field::kLossMask);
  const std::int64_t tokens = mask.size(1);
  const at::Tensor sum = (output.narrow(1, 0, tokens) * mask).sum();
  const at::Tensor count = mask.sum();
  pipeline::Loss loss;
  const at::Tensor full_count = batch.find(Field::kLossCount);
  loss.value = per_token ? sum : sum / (full_count.defined() ? full_count : count).clamp_min(1);
  loss.report["lm_loss"] = pipeline::metric_sum(sum, count);
  if (output.size(1) == tokens) return loss;
  const at::Tensor order = output.select(1, tokens);
  loss.value = loss.value + order.mean();
  const at::Tensor labels = batch.find(Field::kSwapped);
  const at::Tensor samples =
      labels.defined() ? labels.ne(kNoOrder).sum() : at::full_like(count, order.numel());
  loss.report["sop_loss"] = pipeline::metric_sum(order.sum(), samples);
  return loss;
}

TokenStream::TokenStream(const data::Batches& batches, const Job& job, std::int64_t consumed_samples)
    : job_(&job) {
  const int workers = job.run.data.num_workers;
  if (job.run.parallel.hybrid_context_parallel) {
    sequences_ = std::make_unique<data::Prefetcher<SequenceStep>>(
        [&batches, &job, consumed_samples, rank = data_context_rank(job)](std::int64_t index) {
          const std::int64_t first = job.batch_schedule().samples_after(consumed_samples, index);
          return sequence_step(batches, job.run, rank, first, job.batch_schedule().batch_size_at(first));
        },
        workers);
    return;
  }
  microbatches_ = std::make_unique<data::Prefetcher<data::HostBatch>>(
      // A step consumes the samples of its micro-batches, so that the micro-batches of the run are
      // consecutive, however many of them a step has.
      [&batches, &job, consumed_samples](std::int64_t index) {
        const std::int64_t size = job.run.training.micro_batch_size;
        return batches.get(first_sample(job, consumed_samples, index, size), size);
      },
      workers);
}

template <typename Batch>
Batch TokenStream::next_of(data::Prefetcher<Batch>& prefetcher, double& wait) {
  fault::point("data");
  const auto begin = std::chrono::steady_clock::now();
  Batch batch = prefetcher.next();
  wait += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return batch;
}

pipeline::Steps TokenStream::next() {
  if (sequences_) {
    const auto step = std::make_shared<const SequenceStep>(next_of(*sequences_, wait_.before_step));
    longest_over_mean_ = step->longest_over_mean;
    return sequence_steps(*job_, step);
  }
  // The first stage of every schedule requests micro-batches in order. Later chunks may reuse earlier ones,
  // which the executor keeps.
  expected_ = 0;
  return steps_with(*job_, [this](int microbatch) {
    COL_CHECK(microbatch == expected_, "TokenStream: micro-batches must be requested in order; got {} for {}",
              microbatch, expected_);
    ++expected_;
    tensor::Batch batch = batch_of(*job_, next_of(*microbatches_, wait_.in_step));
    fault::point("forward");
    return batch;
  });
}

void TokenStream::skip() {
  if (sequences_) return void(next_of(*sequences_, wait_.before_step));
  for (int i = job_->num_microbatches(); i > 0; --i) next_of(*microbatches_, wait_.before_step);
}

DataWait TokenStream::take_wait() { return std::exchange(wait_, {}); }

data::HostBatch padded_rows(const data::Batches& batches, const PaddedRows& rows) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(rows.all), rows.padding);
  std::iota(numbers.begin(), numbers.begin() + rows.own, rows.first);
  data::HostBatch host = batches.get(numbers);
  if (rows.own == rows.all) return host;
  if (host.loss_mask.empty()) host.loss_mask.assign(host.tokens.size(), 1.0F);
  std::fill(host.loss_mask.begin() + rows.own * host.seq, host.loss_mask.end(), 0.0F);
  if (!host.swapped.empty()) std::fill(host.swapped.begin() + rows.own, host.swapped.end(), kNoOrder);
  return host;
}

pipeline::Steps evaluation_steps(const data::Batches& batches, const Job& job, std::int64_t first,
                                 std::optional<std::int64_t> samples) {
  const std::int64_t size = samples.value_or(config::eval_batch_size(job.run.training));
  COL_CHECK(size > 0 && size <= config::eval_batch_size(job.run.training),
            "an evaluation batch must hold 1 to {} samples; got {}",
            config::eval_batch_size(job.run.training), size);
  if (job.run.parallel.hybrid_context_parallel)
    return sequence_steps(job, std::make_shared<const SequenceStep>(
                                   sequence_step(batches, job.run, data_context_rank(job), first, size)));
  return steps_with(job, [&batches, &job, first, size](int microbatch) {
    const std::int64_t rows = config::eval_micro_batch_size(job.run.training);
    const std::int64_t begin = first_sample(job, first, microbatch, rows);
    const std::int64_t own = std::clamp<std::int64_t>(first + size - begin, 0, rows);
    return batch_of(job, padded_rows(batches, {.first = begin, .own = own, .all = rows, .padding = first}));
  });
}

}  // namespace colonnade::job
