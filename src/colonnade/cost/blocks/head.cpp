// See head.h.
#include "colonnade/cost/blocks/head.h"

#include "colonnade/cost/blocks/compute_parts.h"
#include "colonnade/cost/blocks/mtp.h"

namespace colonnade::cost {

std::int64_t HeadCost::batch() const {
  return z_.n * (kInt64 + kFp32) + (z_.m.bert_binary_head ? z_.b * kInt64 : 0);
}

/// With their statistics, one more with tensor parallelism.
std::int64_t HeadCost::logits_saved() const {
  return z_.n * z_.vocabulary * z_.e + z_.n * kFp32 * (z_.tp > 1 ? 3 : 2);
}

/// A copy in [s, b] order.
std::int64_t HeadCost::labels_saved() const { return z_.b > 1 ? z_.n * kInt64 : 0; }

/// With the transform (input and output of GELU, norm), the binary head, and the rows of the other sequence.
std::int64_t HeadCost::next_token_saved() const {
  const std::int64_t transform = z_.m.lm_head_transform ? 3 * z_.hidden + norm_statistics(z_.m, z_.r) : 0;
  const std::int64_t pooled = z_.b * (2 * z_.m.hidden_size * z_.e + 2 * (z_.e + kFp32));
  return logits_saved() + labels_saved() + sequences_.hidden() - z_.stream + transform +
         (z_.m.bert_binary_head ? pooled : 0);
}

/// Saved bytes of one MTP depth, with shifted labels and mask.
std::int64_t HeadCost::depth_saved() const {
  return logits_saved() + (mtp_targets_in_batch(z_) ? labels_saved() : z_.n * (kInt64 + kFp32));
}

std::int64_t HeadCost::saved() const { return next_token_saved() + depths() * depth_saved(); }

/// A language-model head transform adds its input and output gradient.
std::int64_t HeadCost::one_wgrad_saved() const {
  return z_.full_hidden() + z_.n * z_.vocabulary * z_.e + (z_.m.lm_head_transform ? 2 * z_.hidden : 0);
}

std::int64_t HeadCost::wgrad_saved() const { return (1 + depths()) * one_wgrad_saved(); }

std::int64_t HeadCost::largest_weight_gradient() const {
  return weight_gradient_bytes(z_, z_.vocabulary * z_.m.hidden_size);
}

/// The main logits, then those of the MTP depths. At the end the gradients of all states are alive; those of
/// states received from another stage are concatenated, and converted where the residual stream has another
/// dtype. Delayed weight gradients hold the states as received, or converted, or gathered.
void HeadCost::backward(StageTracker& tracker) const {
  const layout::StageBlocks& stage = tracker.stage();
  const bool apart = stage.states_in > stage.states_out, as_received = apart && !z_.sequence_parallel;
  const std::int64_t wgrad_saved = one_wgrad_saved() - (as_received ? z_.full_hidden() : 0);
  const std::int64_t workspace = z_.full_hidden() + (z_.sequence_parallel ? z_.gathered + z_.hidden : 0) +
                                 (tracker.delay_wgrad() ? 0 : largest_weight_gradient());
  for (std::int64_t i = 0; i <= depths(); ++i) {
    tracker.transient(i * z_.hidden + workspace);
    tracker.release(i == 0 ? next_token_saved() : depth_saved(), wgrad_saved);
  }
  if (!apart) return;
  const std::int64_t states = stage.states_in * z_.hidden, received = stage.states_in * z_.stream;
  tracker.transient(states + received);
  tracker.release(received + stage.states_in * z_.converted, as_received ? states : 0);
}

std::int64_t HeadCost::evaluation() const {
  return (z_.m.lm_head_transform ? z_.hidden : 0) + z_.gathered + z_.n * z_.e * z_.vocabulary;
}

BlockCompute HeadCost::one_compute() const {
  const RealSizes z(z_);
  BlockCompute compute;
  const double rows = RealSizes::real(z_.vocabulary), logits = z.n * rows * z.e;
  compute.add_elementwise(2 * logits, 2 * logits, 4, 1);
  if (z.m.logit_multiplier() != 1) compute.add_elementwise(2 * z.hidden, 2 * z.hidden, 1, 1);
  compute.matmuls = {{"output", z.n, rows, z.h, LinearSharding::kColumns, z.full_hidden}};
  if (!z.m.lm_head_transform) return compute;
  add_plain_norm(compute, z.hidden);
  compute.add_elementwise(2 * z.hidden, 3 * z.hidden, 1, 1);
  compute.matmuls.push_back({"dense", z.r, z.h, z.h, LinearSharding::kReplicated});
  if (!z.m.bert_binary_head) return compute;
  const double samples = RealSizes::real(z_.b);
  compute.matmuls.push_back({"pooler", samples, z.h, z.h, LinearSharding::kReplicated});
  compute.matmuls.push_back({"binary head", samples, 2, z.h, LinearSharding::kReplicated});
  if (z.sequence_parallel)  // gathers the first token of each sequence
    compute.collectives.push_back({GroupKind::kTensor, false, samples * z.h * z.e, 1, 0});
  return compute;
}

void HeadCost::add_compute(AttentionKernel /*kernel*/, std::vector<RepeatedCompute>& parts) const {
  parts.push_back({one_compute(), 1 + RealSizes::real(depths())});
}

ForwardFlops HeadCost::flops() const {
  const double h = RealSizes::real(z_.m.hidden_size), tokens = RealSizes::real(z_.seq_length);
  const double rows = RealSizes::real(z_.vocabulary * z_.tp);
  double linears = tokens * 2 * h * rows * (1 + RealSizes::real(depths()));
  if (z_.m.lm_head_transform) linears += tokens * 2 * h * h;
  if (z_.m.bert_binary_head) linears += 2 * h * (h + 2);  // first token only
  return {.linears = linears};
}

}  // namespace colonnade::cost
