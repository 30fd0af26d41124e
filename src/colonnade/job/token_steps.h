// The data step and the loss function of pretraining, for GPT, T5 and BERT.
#pragma once

#include <memory>
#include <optional>

#include "colonnade/data/batches.h"
#include "colonnade/data/prefetcher.h"
#include "colonnade/job/job.h"
#include "colonnade/job/sequence_steps.h"

namespace colonnade::job {

/// A host batch as tensors on the CPU: every field that the data has (tensor::Field). Default positions 0 ..
/// s-1 are left out, as in the host batch; a missing loss mask becomes ones.
tensor::Batch to_batch(data::HostBatch host);

/// With --calculate-per-token-loss: writes the inputs of `depths` multi-token prediction depths into a full
/// micro-batch (layers::MtpTargets). A mean over the micro-batch has the weight of all its tokens, and the
/// MTP losses should have the weight of the tokens with a loss: the divisor of their sums becomes count *
/// tokens / sum(loss mask). Source: process_mtp_loss of Megatron's
/// core/transformer/multi_token_prediction.py.
void put_mtp_per_token(tensor::Batch& full, std::int64_t depths);

/// Loss counts of a `sample` by depth, as put_mtp_per_token writes them; zeros for an empty one.
std::vector<double> counts_ahead(const config::Model& model, const data::HostBatch& sample);
/// Writes the inputs of depths 1 to `counts`.size() with these loss counts into a full micro-batch.
void put_counts_ahead(tensor::Batch& full, const std::vector<double>& counts);

/// A context-parallel rank's shard of a full micro-batch: its tokens of each row (layout::context_chunks) in
/// all fields that are sharded along the sequence (tensor::BatchKey::is_sequence_sharded). Adds the
/// positions, the loss count, and the inputs of `mtp_depths` multi-token prediction depths, whose tokens may
/// lie on other ranks (layers::MtpTargets). With one rank the batch is returned unchanged.
tensor::Batch context_shard(tensor::Batch full, int rank, int ranks, std::int64_t mtp_depths = 0);

/// Masked mean over the micro-batch: sum(loss * mask) / max(sum(mask), 1); with `per_token` the sum alone
/// (Job divides by the global count). For a context shard its share, so that the ranks' values add up to the
/// mean. Reports lm_loss. A column after the tokens is each sample's sentence-order loss
/// (models/bert/head_block.h): its mean is added, and reported as sop_loss, over the samples that have one.
pipeline::Loss token_loss(const at::Tensor& output, const tensor::Batch& batch, bool per_token);

/// Seconds of waiting for data.
struct DataWait {
  double before_step = 0;  ///< before the steps were returned
  double in_step = 0;      ///< within the steps
};

/// Data steps of consecutive training steps, with batches prefetched by --num-workers threads. Micro-batch m
/// of data-parallel rank r reads samples consumed + (m * ranks + r) * micro_batch; with
/// --hybrid-context-parallel it is a sequence of them (sequence_step). The samples of a step follow those of
/// the step before it, for every batch-size schedule.
class TokenStream {
 public:
  TokenStream(const data::Batches& batches, const Job& job, std::int64_t consumed_samples);
  /// Steps of the next global batch, valid until the next call. Micro-batches must be requested in order;
  /// otherwise Error.
  pipeline::Steps next();
  /// Reads and discards the data of the next global batch.
  void skip();
  /// Waiting time since the last call.
  DataWait take_wait();
  /// SequenceStep::longest_over_mean of the last steps; none without --hybrid-context-parallel.
  [[nodiscard]] std::optional<double> longest_over_mean() const { return longest_over_mean_; }

 private:
  template <typename Batch>
  Batch next_of(data::Prefetcher<Batch>& prefetcher, double& wait);

  const Job* job_;
  DataWait wait_;
  int expected_ = 0;  ///< next micro-batch of the step
  std::optional<double> longest_over_mean_;
  /// Exactly one is set: micro-batches, or global batches of sequences.
  std::unique_ptr<data::Prefetcher<data::HostBatch>> microbatches_;
  std::unique_ptr<data::Prefetcher<SequenceStep>> sequences_;
};

/// Label of a sample that has no loss for the order of its sentences.
inline constexpr std::int64_t kNoOrder = -100;

/// Rows of a batch: the samples [first, first + own), and copies of sample `padding` up to `all` rows.
struct PaddedRows {
  std::int64_t first, own, all, padding;
};
/// Padding rows have no loss: their loss mask is 0, and their label of the sentence order kNoOrder.
data::HostBatch padded_rows(const data::Batches& batches, const PaddedRows& rows);

/// Steps of the evaluation batch of a split that begins at sample `first_sample`, as in training but without
/// prefetching, with config::eval_batch_size rows in micro-batches of config::eval_micro_batch_size. The rows
/// after the first `samples` are padding; all rows are samples by default.
pipeline::Steps evaluation_steps(const data::Batches& batches, const Job& job, std::int64_t first_sample,
                                 std::optional<std::int64_t> samples = {});

}  // namespace colonnade::job
