// Cost of the head: output layer and loss, for BERT also the language-model head transform and the binary
// head.
#pragma once

#include "colonnade/cost/blocks/block_cost.h"

namespace colonnade::cost {

/// With V padded vocabulary rows and D MTP depths, which it computes too:
///   saved    n e V/t (logits) + 8 n (12 n when t > 1; 8 n more when b > 1), per MTP depth the same and 12 n
///            (labels, mask); BERT: r h e 3 + statistics of a norm (transform)
///   delayed  n h e + n e V/t (gradient of the logits), 1 + D times; BERT: 2 r h e
///   batch    labels and loss mask, 12 per token; sentence order, 8 per sequence
///   compute  output layer [n, h] x [h, V/t] and loss (two reads of the logits forward; a read and a write
///            backward), 1 + D times
///   FLOPs    tokens 2 h V, 1 + D times; BERT: tokens 2 h^2 + 2 h (h + 2) of the first token
class HeadCost final : public BlockCost {
 public:
  explicit HeadCost(const Sequences& sequences) : BlockCost(sequences) {}
  [[nodiscard]] std::int64_t batch() const override;
  [[nodiscard]] std::int64_t saved() const override;
  void backward(StageTracker& tracker) const override;
  [[nodiscard]] std::int64_t wgrad_saved() const override;
  [[nodiscard]] std::int64_t largest_weight_gradient() const override;
  [[nodiscard]] std::int64_t evaluation() const override;
  void add_compute(AttentionKernel kernel, std::vector<RepeatedCompute>& parts) const override;
  [[nodiscard]] ForwardFlops flops() const override;

 private:
  [[nodiscard]] std::int64_t depths() const { return z_.m.mtp_num_layers; }
  [[nodiscard]] std::int64_t logits_saved() const;
  [[nodiscard]] std::int64_t labels_saved() const;
  [[nodiscard]] std::int64_t next_token_saved() const;
  [[nodiscard]] std::int64_t depth_saved() const;
  [[nodiscard]] std::int64_t one_wgrad_saved() const;
  [[nodiscard]] BlockCompute one_compute() const;
};

}  // namespace colonnade::cost
