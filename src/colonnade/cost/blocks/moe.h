// Cost of an MoE layer: fp32 router, dispatch and combine, local experts, shared experts.
#pragma once

#include "colonnade/cost/blocks/compute_parts.h"
#include "colonnade/cost/blocks/mixer_cost.h"

namespace colonnade::cost {

/// With routed experts of width l (config::Model::expert_width), top-k routing, f columns per expert, E
/// experts, ep expert ranks and etp expert tensor ranks, c = 1, gated 2: a rank sends R = r k etp rows, at
/// most E C etp with a capacity C (layout/expert_capacity.h), exactly that with padding, and receives R u, R
/// u ep / E for each of its E / ep experts. u is the assumed load of the most loaded rank relative to the
/// mean, 1 unless --expert-imbalance is given; the other ranks wait for it.
///   saved     R e (2 l + f (c + 1)/etp), with projections r l e, shared experts as an MLP of n tokens,
///             router scores and top-k indices r (4 E + 8 k), and the permutation indices: 16 R + 12 r k
///             etp, over several ranks 16 R more for all-to-all, or 16 R + 12 r k ep etp for all-gather,
///             and 8 per expert for token counts; with jitter and shared experts or projections r h e.
///             Recomputed moe and shared_experts save nothing; moe_act saves no activation output
///   delayed   4 r E (gradients of the router's logits) + 4 r h (its input, fp32)
///             + R e (2 l + f (c + 1)/etp), with projections r e (2 l + 2 h), and for shared experts the
///             terms of an MLP; tensors of several terms count once
///   FLOPs     tokens 2 (c + 1) (l k f + h shared columns), with projections tokens 4 h l more
/// Dispatch and combine send rows by all-to-all forward and backward, after their counts; or all-gather
/// tokens after their top-k indices and weights, and reduce-scatter outputs.
class MoeCost final : public MixerCost {
 public:
  explicit MoeCost(const Sizes& z);
  [[nodiscard]] std::int64_t saved() const override;
  void backward(LayerTracker& tracker) const override;
  /// The all-to-all of rows to their experts and back.
  [[nodiscard]] int forward_waits() const override { return ranks_ > 1 && !gathers_ ? 2 : 0; }
  /// Recomputed exchanges wait again.
  [[nodiscard]] int backward_waits() const override {
    return forward_waits() * (z_.recomputes("moe") ? 2 : 1);
  }
  [[nodiscard]] std::int64_t output_workspace() const override;
  [[nodiscard]] std::int64_t wgrad_saved() const override;
  [[nodiscard]] SharedForWgrad shared_for_wgrad() const override;
  [[nodiscard]] std::int64_t largest_weight_gradient() const override;
  [[nodiscard]] std::int64_t evaluation() const override;
  [[nodiscard]] BlockCompute compute(AttentionKernel kernel) const override;
  void add_recomputed(AttentionKernel kernel, std::vector<BlockCompute>& parts) const override;
  [[nodiscard]] double parameters() const override;
  [[nodiscard]] ForwardFlops flops() const override;
  [[nodiscard]] ForwardFlops recomputed_flops() const override;

 private:
  [[nodiscard]] std::int64_t all_saved() const;
  [[nodiscard]] std::int64_t routing_saved() const;
  [[nodiscard]] std::int64_t shared_gate_saved() const;
  [[nodiscard]] std::int64_t router_wgrad_saved() const;
  [[nodiscard]] std::int64_t gate_wgrad_saved() const;
  [[nodiscard]] bool has_other_input_reader() const;
  [[nodiscard]] bool shares_output_gradient() const;
  [[nodiscard]] std::int64_t projection_wgrad_saved() const;
  [[nodiscard]] std::int64_t projection_gradient_bytes() const;
  [[nodiscard]] std::int64_t expert_gradient_bytes() const;
  void gate_backward(LayerTracker& tracker) const;
  void shared_backward(LayerTracker& tracker) const;
  void routed_backward(LayerTracker& tracker) const;
  void up_backward(LayerTracker& tracker) const;
  void down_backward(LayerTracker& tracker) const;

  void add_router(BlockCompute& compute) const;
  void add_all_to_all_dispatch(BlockCompute& compute) const;
  void add_all_gather_dispatch(BlockCompute& compute) const;
  void add_permutation(BlockCompute& compute, double rows, double tokens) const;
  void add_activation(BlockCompute& compute) const;
  void add_experts(BlockCompute& compute) const;
  void add_projections(BlockCompute& compute) const;
  void add_shared(BlockCompute& compute) const;
  [[nodiscard]] double shared_flops() const;

  const config::Moe& moe_;
  std::int64_t ep_, etp_, ranks_, topk_;
  bool gathers_;
  bool projects_;        ///< projections around the routed experts
  std::int64_t width_;   ///< elements of a routed row
  std::int64_t routed_;  ///< bytes of this rank's tokens at that width
  double imbalance_;
  std::int64_t sent_rows_;               ///< rows that this rank sends to experts
  std::int64_t expert_rows_;             ///< rows of this rank's experts, on the most loaded rank
  std::int64_t combined_rows_;           ///< rows combined into tokens on this rank
  std::int64_t ffn_, shared_ffn_;        ///< local columns
  std::int64_t row_bytes_;               ///< inputs of this rank's experts, or their outputs
  std::int64_t fc2_input_, fc1_output_;  ///< after and before the activation
  std::int64_t combined_bytes_;          ///< combined rows
};

}  // namespace colonnade::cost
