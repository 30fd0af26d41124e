// Cost of a block of the model (layout/blocks.h): one class per kind of block. Stages add up their
// blocks: cost/activations.h the memory, cost/stage_compute.h compute and traffic, cost/flops.h FLOPs. They
// name no mixer, and kinds of blocks only for their position: before, among or after the layers. ModelCost
// makes the blocks of a run.
#pragma once

#include <vector>

#include "colonnade/cost/blocks/compute.h"
#include "colonnade/cost/blocks/sequences.h"
#include "colonnade/cost/blocks/stage_tracker.h"

namespace colonnade::cost {

/// Memory in bytes, compute and FLOPs of one micro-batch on one rank. The parameters are those of
/// layout::for_each_param. A test compares each quantity with the built model.
class BlockCost {
 public:
  virtual ~BlockCost() = default;

  /// Part of the micro-batch itself that the block reads.
  [[nodiscard]] virtual std::int64_t batch() const { return 0; }
  /// Activations saved between forward and backward, without those that selective recomputation covers.
  [[nodiscard]] virtual std::int64_t saved() const = 0;
  /// Backward pass: peaks, and the release of the saved activations.
  virtual void backward(StageTracker& tracker) const = 0;
  /// Waits of each pass at which the other one of a pair continues (layers/context.h: Context::turns).
  [[nodiscard]] virtual int forward_waits() const { return 0; }
  [[nodiscard]] virtual int backward_waits() const { return 0; }
  /// Inputs and output gradients of the linear layers, saved after kBackwardInput until the weight gradients
  /// are computed.
  [[nodiscard]] virtual std::int64_t wgrad_saved() const { return 0; }
  /// Largest weight gradient before its accumulation.
  [[nodiscard]] virtual std::int64_t largest_weight_gradient() const { return 0; }
  /// Peak of a forward pass that saves nothing; of blocks other than layers on top of the hidden states that
  /// the stage receives.
  [[nodiscard]] virtual std::int64_t evaluation() const = 0;
  /// Appends forward and backward pass.
  virtual void add_compute(AttentionKernel kernel, std::vector<RepeatedCompute>& parts) const = 0;
  /// Appends the forward passes that selective recomputation repeats.
  virtual void add_recomputed(AttentionKernel /*kernel*/, std::vector<BlockCompute>& /*parts*/) const {}
  /// Forward FLOPs, and those that recomputation repeats; of layers only by selective recomputation.
  [[nodiscard]] virtual ForwardFlops flops() const = 0;
  [[nodiscard]] virtual ForwardFlops recomputed_flops() const { return {}; }

 protected:
  explicit BlockCost(const Sequences& sequences) : sequences_(sequences), z_(sequences.tokens()) {}
  const Sequences& sequences_;
  const Sizes& z_;  ///< sizes of the sequence that embedding and head process
};

}  // namespace colonnade::cost
