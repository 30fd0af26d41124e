// Cost of multi-latent attention (MLA): attention whose queries, keys and values come from narrow latents.
#pragma once

#include "colonnade/cost/blocks/attention.h"

namespace colonnade::cost {

/// With n heads of d query channels (p of them rotary) and v value channels, latents of widths a (queries; 0:
/// queries project the hidden state) and c (keys and values):
///   saved     as attention, with v/t of values in place of the second kv, and for each latent of width w
///             r e w, with q/k norms r e 2 w and statistics; recomputed mla_up_proj saves no queries, keys
///             and values but the rotary channels of all keys
///   compute   down-projections r a h and r (c + p) h, replicated, latent norms, up-projections of the
///             gathered latents to q and to heads (d - p + v), core attention, proj
///   FLOPs     tokens 2 (a (h + n d) + c (h + n (d - p + v)) + h p + n v h), with h n d for a (h + n d) where
///             a is 0; n (d + v) per token and unmasked key; norms tokens 2 (a + c)
class LatentAttentionCost final : public AttentionCost {
 public:
  LatentAttentionCost(const Sizes& z, const LayerTraits& layer);
  [[nodiscard]] std::int64_t wgrad_saved() const override;
  void add_recomputed(AttentionKernel kernel, std::vector<BlockCompute>& parts) const override;
  [[nodiscard]] double parameters() const override;
  [[nodiscard]] ForwardFlops flops() const override;
  [[nodiscard]] ForwardFlops recomputed_flops() const override;

 protected:
  [[nodiscard]] std::int64_t projections_saved() const override;
  [[nodiscard]] std::int64_t recomputed_qkv() const override;
  void projections_backward(LayerTracker& tracker, std::int64_t copies) const override;
  [[nodiscard]] std::int64_t largest_weight() const override;
  [[nodiscard]] std::int64_t projections_evaluation() const override;
  void add_projections(BlockCompute& compute) const override;
  [[nodiscard]] double projection_flops() const override;
  [[nodiscard]] double score_flops() const override;

 private:
  [[nodiscard]] std::int64_t saved_of(std::int64_t width) const;
  void add_up_projections(BlockCompute& compute) const;
  [[nodiscard]] double up_projection_flops() const;

  std::int64_t a_, c_, p_;  ///< widths as above
  std::int64_t plain_, v_;  ///< d - p and v
};

}  // namespace colonnade::cost
