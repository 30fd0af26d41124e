// Cost of a mixer: what a sublayer of a transformer layer computes between its norm and its residual
// connection, as in layers/mixer.h. One class per kind of mixer; make_mixers() in layer.cpp is the
// factory.
#pragma once

#include <vector>

#include "colonnade/cost/blocks/compute.h"
#include "colonnade/cost/blocks/layer_tracker.h"
#include "colonnade/cost/blocks/sizes.h"

namespace colonnade::cost {

/// Tensors that all mixers of a sublayer share.
struct SharedForWgrad {
  bool input = true, output_gradient = true;
};

/// Memory in bytes, compute and FLOPs of one micro-batch on one rank. layout/params has
/// the parameters. A test compares each quantity with the built model.
class MixerCost {
 public:
  virtual ~MixerCost() = default;

  /// Activations saved between forward and backward, without modules that selective recomputation covers.
  [[nodiscard]] virtual std::int64_t saved() const = 0;
  /// Backward pass, from LayerTracker::enter_mixer() on, with recomputation.
  virtual void backward(LayerTracker& tracker) const = 0;
  /// As in BlockCost.
  [[nodiscard]] virtual int forward_waits() const { return 0; }
  [[nodiscard]] virtual int backward_waits() const { return forward_waits(); }
  /// End of a recomputed forward pass of the whole mixer: its output, which is unsharded before the
  /// reduce-scatter.
  [[nodiscard]] virtual std::int64_t output_workspace() const { return z_.gathered + z_.hidden; }
  /// Inputs and output gradients of the linear layers, saved after kBackwardInput until the weight gradients
  /// are computed.
  [[nodiscard]] virtual std::int64_t wgrad_saved() const = 0;
  /// Which shared tensors wgrad_saved() counts, unless linears gather them. A sublayer saves one copy of
  /// each.
  [[nodiscard]] virtual SharedForWgrad shared_for_wgrad() const { return {}; }
  /// Largest weight gradient before its accumulation.
  [[nodiscard]] virtual std::int64_t largest_weight_gradient() const = 0;
  /// Peak of a forward pass that saves nothing, with the layer's hidden states.
  [[nodiscard]] virtual std::int64_t evaluation() const = 0;
  /// Forward and backward pass.
  [[nodiscard]] virtual BlockCompute compute(AttentionKernel kernel) const = 0;
  /// Appends the forward passes that selective recomputation repeats.
  virtual void add_recomputed(AttentionKernel kernel, std::vector<BlockCompute>& parts) const = 0;
  /// Weights on all ranks, as Megatron's memory estimate counts them (theoretical_memory).
  [[nodiscard]] virtual double parameters() const = 0;
  /// Forward FLOPs, and those that selective recomputation repeats.
  [[nodiscard]] virtual ForwardFlops flops() const = 0;
  [[nodiscard]] virtual ForwardFlops recomputed_flops() const = 0;

 protected:
  explicit MixerCost(const Sizes& z) : z_(z) {}
  const Sizes& z_;  ///< sizes of the layer's sequence
};

}  // namespace colonnade::cost
