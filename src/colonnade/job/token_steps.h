// The data step and the loss reduction of pretraining, of a GPT, a T5 or a BERT.
#pragma once

#include <memory>
#include <optional>

#include "colonnade/data/batches.h"
#include "colonnade/data/prefetcher.h"
#include "colonnade/job/job.h"
#include "colonnade/job/sequence_steps.h"

namespace colonnade::job {

/// A host batch as named tensors on the CPU: tokens, labels, loss_mask, position_ids, samples, and
/// attention_mask, encoder_tokens and encoder_padding, token_types, padding and swapped where the data has
/// them. Positions 0 .. s-1 are left out, as there: they are the default.
tensor::Batch to_batch(data::HostBatch host);

/// With --calculate-per-token-loss: writes what `further` predicted tokens read into a whole micro-batch
/// (layers::Ahead). Means of it weigh as all of its tokens, and theirs is to weigh as those that count for
/// the next token: what their sum is divided by becomes count * tokens / sum(loss mask). Source:
/// process_mtp_loss of Megatron's core/transformer/multi_token_prediction.py.
void put_further_per_token(tensor::Batch& whole, std::int64_t further);

/// What a context rank reads of a whole micro-batch: its tokens of each row (layout::context_chunks) with
/// their labels, loss mask and positions. The mask of documents stays whole. Adds `loss_count`, the whole sum
/// of the loss mask, and what `further` predicted tokens read, which may lie on other ranks (layers::Ahead).
/// With one rank the batch as it is.
tensor::Batch context_part(tensor::Batch whole, int rank, int ranks, std::int64_t further = 0);

/// Masked mean over the micro-batch: sum(loss * mask) / max(sum(mask), 1); with `per_token` the sum
/// alone (the division by the global count follows in Job). Of a part of a micro-batch (context_part) the
/// part's share, so that the ranks' values add up to the mean. Reports lm_loss. A column behind the tokens is
/// the loss of each sample's order of sentences (models/bert/head_block.h): its mean is added, and reported
/// as sop_loss.
pipeline::Loss token_loss(const at::Tensor& output, const tensor::Batch& batch, bool per_token);

/// Seconds of waiting for data.
struct Waited {
  double before = 0;  ///< the steps were there
  double within = 0;  ///< them
};

/// The steps of training step after training step, batches prefetched by --num-workers threads.
/// The micro-batch m of data-parallel rank r reads samples consumed + (m * ranks + r) * micro_batch; with
/// --hybrid-context-parallel it is a sequence of them (sequence_step).
class TokenStream {
 public:
  TokenStream(const data::Batches& batches, const Job& job, std::int64_t consumed_samples);
  /// Of the next global batch. The returned functions are used before the next call, and ask for the
  /// micro-batches in order; another one is an Error.
  pipeline::Steps next();
  /// Since the last call.
  Waited waited();
  /// Of the last steps (SequenceStep::longest_over_mean); none without --hybrid-context-parallel.
  [[nodiscard]] std::optional<double> longest_over_mean() const { return longest_over_mean_; }

 private:
  template <typename Batch>
  Batch next_of(data::Prefetcher<Batch>& prefetcher, double& waited);

  const Job* job_;
  Waited waited_;
  int expected_ = 0;  ///< the next micro-batch of the step
  std::optional<double> longest_over_mean_;
  /// One of the two: micro-batches, or global batches as sequences.
  std::unique_ptr<data::Prefetcher<data::HostBatch>> microbatches_;
  std::unique_ptr<data::Prefetcher<SequenceStep>> sequences_;
};

/// The steps of the evaluation batch of a split that begins at sample `first_sample`, as in training; not
/// prefetched.
pipeline::Steps evaluation_steps(const data::Batches& batches, const Job& job, std::int64_t first_sample);

}  // namespace colonnade::job
