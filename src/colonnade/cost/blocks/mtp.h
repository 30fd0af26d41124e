// Cost of a multi-token prediction (MTP) layer.
#pragma once

#include "colonnade/cost/blocks/layer.h"

namespace colonnade::cost {

/// One depth: embedding of the shifted tokens, two norms, projection of their concatenation [r, 2 h], a
/// transformer layer and a final norm. The head adds the depth's logits.
///   saved    8 n (tokens, unless they come with the batch) + r h (e' + 2 e) + statistics of two norms + a
///            layer + a final norm; no layer if it is recomputed (layout::recomputes_mtp_layers)
///   delayed  3 r h e and the terms of a layer
///   FLOPs    tokens 4 h^2 and those of a layer; norms tokens 6 h
class MtpCost final : public BlockCost {
 public:
  /// `index`: 0-based depth. `layer` must outlive it.
  MtpCost(const Sequences& sequences, const LayerCost& layer, std::int64_t index);
  [[nodiscard]] std::int64_t batch() const override;
  [[nodiscard]] std::int64_t saved() const override;
  void backward(StageTracker& tracker) const override;
  [[nodiscard]] int forward_waits() const override { return transformer_.forward_waits(); }
  [[nodiscard]] int backward_waits() const override {
    return transformer_.backward_waits() + (recomputes_ ? transformer_.forward_waits() : 0);
  }
  [[nodiscard]] std::int64_t wgrad_saved() const override;
  [[nodiscard]] std::int64_t largest_weight_gradient() const override;
  /// Not evaluated.
  [[nodiscard]] std::int64_t evaluation() const override { return 0; }
  void add_compute(AttentionKernel kernel, std::vector<RepeatedCompute>& parts) const override;
  void add_recomputed(AttentionKernel kernel, std::vector<BlockCompute>& parts) const override;
  [[nodiscard]] ForwardFlops flops() const override;
  [[nodiscard]] ForwardFlops recomputed_flops() const override;

 private:
  /// Saved without the transformer layer.
  [[nodiscard]] std::int64_t own_saved() const;
  [[nodiscard]] ForwardFlops projection_flops() const;

  const LayerCost& transformer_;
  std::int64_t index_;
  bool recomputes_;
};

/// Whether MTP tokens, labels and masks come with the batch: with context parallelism or a per-token loss.
bool mtp_targets_in_batch(const Sizes& z);

}  // namespace colonnade::cost
