// Cost of a dense MLP: fc1, activation, fc2.
#pragma once

#include "colonnade/cost/blocks/compute_parts.h"
#include "colonnade/cost/blocks/mixer_cost.h"

namespace colonnade::cost {

/// With f = ffn / tp local columns and c = 1, gated 2:
///   saved     n e f (c + 1): fc1 and activation outputs; 0 with recomputed mlp
///   delayed   2 n h e + n e f (c + 1)
///   compute   fc1 [n, h] x [h, c f], activation (reads fc1's output, writes fc2's input), fc2 [n, f] x [f,
///   h] FLOPs     tokens 2 h ffn (c + 1)
class MlpCost final : public MixerCost {
 public:
  explicit MlpCost(const Sizes& z);
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

 private:
  std::int64_t ffn_;  ///< local columns
};

/// fc1 and activation outputs of `ffn` local columns.
std::int64_t mlp_bytes(const Sizes& z, std::int64_t ffn);
/// Backward pass of fc2, activation and fc1. `output_gradient`: bytes that are freed after fc2.
void mlp_backward(LayerTracker& tracker, const Sizes& z, std::int64_t ffn, std::int64_t output_gradient = 0);
/// Compute of fc1, activation and fc2 with these names.
void add_mlp(BlockCompute& compute, const RealSizes& z, const char* fc1, const char* fc2, std::int64_t ffn);
/// Weights of fc1 and fc2 on all ranks.
double mlp_parameters(const config::Model& m);
/// Forward FLOPs of a token per column of fc2's input.
double mlp_column_flops(const config::Model& m);

}  // namespace colonnade::cost
