// See mtp.h.
#include "colonnade/cost/blocks/mtp.h"

#include <algorithm>

#include "colonnade/cost/blocks/compute_parts.h"
#include "colonnade/cost/blocks/embedding.h"
#include "colonnade/cost/blocks/final_norm.h"
#include "colonnade/layout/recompute.h"

namespace colonnade::cost {

bool mtp_targets_in_batch(const Sizes& z) { return z.cp > 1 || z.run.training.calculate_per_token_loss; }

MtpCost::MtpCost(const Sequences& sequences, const LayerCost& layer, std::int64_t index)
    : BlockCost(sequences),
      transformer_(layer),
      index_(index),
      recomputes_(layout::recomputes_mtp_layers(z_.run.recompute)) {}

std::int64_t MtpCost::batch() const { return mtp_targets_in_batch(z_) ? z_.n * (2 * kInt64 + kFp32) : 0; }

std::int64_t MtpCost::own_saved() const {
  const std::int64_t tokens = mtp_targets_in_batch(z_) ? 0 : z_.n * kInt64;
  return tokens + z_.stream + 2 * z_.hidden + 2 * norm_statistics(z_.m, z_.r) + FinalNormCost::saved(z_);
}

std::int64_t MtpCost::saved() const { return own_saved() + (recomputes_ ? 0 : transformer_.saved()); }

/// The gradients of the earlier states are alive. Gradients received from another stage are one tensor, which
/// stays alive as a whole, converted where the residual stream has another dtype.
void MtpCost::backward(StageTracker& tracker) const {
  const layout::StageBlocks& stage = tracker.stage();
  const bool sends_states = stage.states_out > stage.states_in;
  const std::int64_t states = sends_states ? stage.states_out : index_ + 1;
  if (sends_states && z_.converted > 0) tracker.transient(states * (z_.stream + z_.hidden));
  if (recomputes_) tracker.allocate(transformer_.saved());
  transformer_.backward(tracker, states * z_.hidden);
  tracker.release(own_saved(), 3 * z_.hidden);
}

std::int64_t MtpCost::wgrad_saved() const { return 3 * z_.hidden + transformer_.wgrad_saved(); }

std::int64_t MtpCost::largest_weight_gradient() const {
  return std::max(weight_gradient_bytes(z_, 2 * z_.m.hidden_size * z_.m.hidden_size),
                  transformer_.largest_weight_gradient());
}

void MtpCost::add_compute(AttentionKernel kernel, std::vector<RepeatedCompute>& parts) const {
  const RealSizes z(z_);
  parts.push_back({embedding_compute(z_)});
  const std::size_t first = parts.size();
  BlockCompute& projection = parts.emplace_back().compute;
  add_plain_norm(projection, z.hidden);
  add_plain_norm(projection, z.hidden);
  projection.add_elementwise(4 * z.hidden, 4 * z.hidden, 1, 1);  // concatenation
  projection.matmuls = {{"eh_proj", z.r, z.h, 2 * z.h, LinearSharding::kReplicated}};
  transformer_.add_compute(kernel, parts);
  if (recomputes_)
    for (std::size_t i = first; i < parts.size(); ++i) parts[i].recomputed = 1;
  add_norm(parts.emplace_back().compute, z);
}

void MtpCost::add_recomputed(AttentionKernel kernel, std::vector<BlockCompute>& parts) const {
  transformer_.add_recomputed(kernel, parts);
}

ForwardFlops MtpCost::projection_flops() const {
  const double h = RealSizes::real(z_.m.hidden_size);
  return {.linears = RealSizes::real(z_.seq_length) * 4 * h * h};
}

ForwardFlops MtpCost::flops() const {
  ForwardFlops sum = projection_flops();
  sum.norms = RealSizes::real(z_.seq_length) * 6 * RealSizes::real(z_.m.hidden_size);
  return sum += transformer_.flops();
}

ForwardFlops MtpCost::recomputed_flops() const {
  if (!recomputes_) return transformer_.recomputed_flops();
  ForwardFlops sum = projection_flops();
  return sum += transformer_.flops();
}

}  // namespace colonnade::cost
