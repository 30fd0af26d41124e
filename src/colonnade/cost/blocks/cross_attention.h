// Cost of cross-attention of decoder tokens to encoder outputs, in decoder layers of encoder-decoder models.
#pragma once

#include "colonnade/cost/blocks/mixer_cost.h"

namespace colonnade::cost {

/// With n decoder and t encoder tokens of a rank, S and T of the full sequences, as many key heads as query
/// heads:
///   saved     n e 2 q (queries, the projection's input) + t e 2 q (keys, values), t h e (converted encoder
///             output, where the residual stream has another dtype) + n 4 heads (log-sum-exp)
///             + b S T e (mask) + n e q (output in the kernel's layout); or with dropout or a soft cap the
///             scores. Recomputed core_attn saves the first two
///   delayed   2 n h e + 2 n e q + t h e + 2 t e q
///   compute   q (n h q), keys and values (t h 2 q), full attention, proj
///   FLOPs     4 h q (S + T), attention 4 q S T
class CrossAttentionCost final : public MixerCost {
 public:
  /// `keys`: the encoder's sequence, which must outlive it.
  CrossAttentionCost(const Sizes& decoder, const Sizes& keys) : MixerCost(decoder), keys_(keys) {}
  [[nodiscard]] std::int64_t saved() const override;
  void backward(LayerTracker& tracker) const override;
  [[nodiscard]] std::int64_t wgrad_saved() const override;
  [[nodiscard]] std::int64_t largest_weight_gradient() const override;
  [[nodiscard]] std::int64_t evaluation() const override;
  [[nodiscard]] BlockCompute compute(AttentionKernel kernel) const override;
  void add_recomputed(AttentionKernel kernel, std::vector<BlockCompute>& parts) const override;
  [[nodiscard]] double parameters() const override;
  [[nodiscard]] ForwardFlops flops() const override;
  [[nodiscard]] ForwardFlops recomputed_flops() const override;

  /// Core attention alone.
  [[nodiscard]] BlockCompute core(AttentionKernel kernel) const;

 private:
  [[nodiscard]] std::int64_t score_bytes() const { return z_.n * keys_.seq_length * z_.heads * z_.e; }
  [[nodiscard]] bool is_capped() const { return z_.m.attn_logit_softcapping > 0; }
  [[nodiscard]] bool is_unfused() const { return is_capped() || z_.m.attention_dropout > 0; }

  const Sizes& keys_;
};

}  // namespace colonnade::cost
