// Cost of a transformer layer: a sequence of sublayers, each a norm, its mixers, with sandwich norms another
// norm, and a residual connection, as in layers/transformer_layer.h.
#pragma once

#include <memory>
#include <vector>

#include "colonnade/cost/blocks/block_cost.h"
#include "colonnade/cost/blocks/layer_traits.h"
#include "colonnade/cost/blocks/mixer_cost.h"

namespace colonnade::cost {

/// The mixers of a sublayer in order of use.
using SublayerCost = std::vector<std::unique_ptr<MixerCost>>;

/// Each sublayer saves r h (e' + e) (input and output of its norm) + statistics, 4 r (LayerNorm 8 r), with a
/// sandwich norm r h e + statistics more; recomputed layernorm saves no output of the first. Where e' is not
/// e, the gradient of a mixer's output is a converted copy, as it is with dropout. A sublayer's norm is fused
/// with the residual sum. Mixers of one sublayer share their input and output gradient, also while weight
/// gradients are delayed (MixerCost::shared_for_wgrad); their outputs and input gradients are summed. With
/// several sequences a layer copies the rows of the others.
///
/// Traffic over tensor ranks: the column-parallel and row-parallel linears of a mixer move n h e bytes in 2
/// all-reduces; with sequence parallelism in 2 all-gathers, 2 reduce-scatters and an all-gather for weight
/// gradients. A recomputed layer repeats the forward collectives.
class LayerCost final : public BlockCost {
 public:
  LayerCost(const Sequences& sequences, const LayerTraits& traits);
  [[nodiscard]] std::int64_t saved() const override { return saved_; }
  void backward(StageTracker& tracker) const override { backward(tracker, 0); }
  [[nodiscard]] int forward_waits() const override;
  [[nodiscard]] int backward_waits() const override;
  /// `other`: bytes of other gradients alive throughout.
  void backward(StageTracker& tracker, std::int64_t other) const;
  /// End of a recomputed forward pass of the layer: the output before its reduce-scatter, or the residual
  /// sum.
  [[nodiscard]] std::int64_t output_workspace() const;
  [[nodiscard]] std::int64_t wgrad_saved() const override { return wgrad_saved_; }
  [[nodiscard]] std::int64_t largest_weight_gradient() const override;
  [[nodiscard]] std::int64_t evaluation() const override;
  void add_compute(AttentionKernel kernel, std::vector<RepeatedCompute>& parts) const override;
  void add_recomputed(AttentionKernel kernel, std::vector<BlockCompute>& parts) const override;
  /// Sum of MixerCost::parameters.
  [[nodiscard]] double parameters() const;
  [[nodiscard]] ForwardFlops flops() const override;
  [[nodiscard]] ForwardFlops recomputed_flops() const override;

 private:
  /// Peak of the backward pass with the gradient of the residual stream.
  struct Workspace {
    std::int64_t peak = 0;
    std::int64_t after_own_group = 0;  ///< LayerTracker::after_own_group
  };
  [[nodiscard]] Workspace workspace(bool delay_wgrad) const;
  template <typename F>
  void for_each_mixer(const F& f) const {
    for (const SublayerCost& sublayer : sublayers_)
      for (const auto& mixer : sublayer) f(*mixer);
  }
  /// Bytes of the other sequence's hidden states, which the layer only copies.
  [[nodiscard]] std::int64_t other_sequence_bytes() const { return sequences_.hidden() - layer_.stream; }

  const Sizes& layer_;  ///< sizes of the layer's sequence
  bool ends_sequence_;
  std::vector<SublayerCost> sublayers_;  ///< in order
  std::int64_t saved_ = 0, wgrad_saved_ = 0;
  Workspace workspace_, delayed_workspace_;  ///< without and with delayed weight gradients
};

}  // namespace colonnade::cost
