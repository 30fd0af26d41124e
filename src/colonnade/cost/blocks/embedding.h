// Cost of the embedding of all sequences.
#pragma once

#include "colonnade/cost/blocks/block_cost.h"

namespace colonnade::cost {

/// saved    learned positions 8 r
/// batch    per token 8, with position ids 8 more, token types 8, padding mask 1
/// compute  lookup, sum with positions and types, and the reduction over tensor ranks
class EmbeddingCost final : public BlockCost {
 public:
  explicit EmbeddingCost(const Sequences& sequences) : BlockCost(sequences) {}
  [[nodiscard]] std::int64_t batch() const override;
  [[nodiscard]] std::int64_t saved() const override;
  void backward(StageTracker& tracker) const override;
  [[nodiscard]] std::int64_t evaluation() const override;
  void add_compute(AttentionKernel kernel, std::vector<RepeatedCompute>& parts) const override;
  [[nodiscard]] ForwardFlops flops() const override { return {}; }
};

/// Lookup of the tokens of one sequence.
BlockCompute embedding_compute(const Sizes& z);

}  // namespace colonnade::cost
