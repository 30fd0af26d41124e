// Cost of the norm before the head.
#pragma once

#include "colonnade/cost/blocks/block_cost.h"
#include "colonnade/cost/blocks/compute_parts.h"

namespace colonnade::cost {

/// Saves r h (e' + e) + statistics. Its norm is fused with the last residual sum.
class FinalNormCost final : public BlockCost {
 public:
  explicit FinalNormCost(const Sequences& sequences) : BlockCost(sequences) {}
  [[nodiscard]] std::int64_t saved() const override { return saved(z_); }
  void backward(StageTracker& tracker) const override {
    // A stage that sends several states per token holds this output there (stage_activations).
    const bool sends_states = tracker.stage().states_out > tracker.stage().states_in;
    if (z_.converted > 0) tracker.transient(z_.stream);
    tracker.release(saved() - (sends_states ? z_.hidden : 0), 0);
  }
  [[nodiscard]] std::int64_t evaluation() const override { return z_.hidden; }
  void add_compute(AttentionKernel /*kernel*/, std::vector<RepeatedCompute>& parts) const override {
    add_norm(parts.emplace_back().compute, RealSizes(z_));
  }
  [[nodiscard]] ForwardFlops flops() const override { return {}; }

  /// Input, output and statistics of such a norm.
  static std::int64_t saved(const Sizes& z) { return z.stream + z.hidden + norm_statistics(z.m, z.r); }
};

}  // namespace colonnade::cost
