// Cost of self-attention, with context parallelism.
#pragma once

#include "colonnade/cost/blocks/compute_parts.h"
#include "colonnade/cost/blocks/layer_traits.h"
#include "colonnade/cost/blocks/mixer_cost.h"

namespace colonnade::cost {

/// With q and kv local query and key channels, s tokens of the full sequence:
///   saved     n e (q + 2 kv), with q/k norms n e (q + kv) and their statistics more
///             + n e q 2 (attention output, in the kernel's layout and as [s, b, h]; once where the layouts
///             agree: on CUDA with b = 1, on the CPU with one head, or if value heads are narrower than query
///             heads there)
///             + n 4 heads (log-sum-exp) + s^2 e (sliding-window mask)
///             With dropout the scores twice, 2 n s heads e, and neither log-sum-exp nor mask; with a soft
///             cap the scores once more than the path without dropout, which then saves them once; so do
///             sinks on CUDA, with one more column. Within documents neither masks nor scores are saved, and
///             on the CPU the attention output once. Recomputed core_attn saves nothing between q, k, v and
///             the attention output as [s, b, h].
///             With an output gate 2 n e q more: the gate and the gated output
///   delayed   2 n h e + n e (2 q + 2 kv); with a gate n e q more
///   compute   qkv [n, h] x [h, q + 2 kv] (with a gate 2 q + 2 kv), rotary embedding, q/k norms, core
///             attention, proj [n, q] x [q, h]
///   FLOPs     tokens 2 (h (q + 2 kv) + q h), and 2 q per token and unmasked key
/// Context ranks exchange heads and sequence shards by all-to-all and back, or pass keys and values around a
/// ring (k - 1 hops, again in backward, with k hops of their fp32 gradients), or all-gather them (twice) and
/// reduce-scatter their gradients.
class AttentionCost : public MixerCost {
 public:
  AttentionCost(const Sizes& z, const LayerTraits& layer);
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

  /// Core attention alone, with its context-parallel communication.
  [[nodiscard]] BlockCompute core(AttentionKernel kernel) const;

 protected:
  // What the projections to queries, keys and values add; the output projection is common.

  /// Saved between the mixer's input and queries, keys and values.
  [[nodiscard]] virtual std::int64_t projections_saved() const;
  /// Queries, keys and values that selective recomputation covers.
  [[nodiscard]] virtual std::int64_t recomputed_qkv() const { return 0; }
  /// From the gradients of queries, keys and values to the end of the mixer. `copies`: of recomputed
  /// queries, keys and values.
  virtual void projections_backward(LayerTracker& tracker, std::int64_t copies) const;
  /// Elements of the largest local weight.
  [[nodiscard]] virtual std::int64_t largest_weight() const;
  /// evaluation() without hidden states and scores: fused queries, keys and values alongside the split ones,
  /// or the attention output and its projection.
  [[nodiscard]] virtual std::int64_t projections_evaluation() const;
  virtual void add_projections(BlockCompute& compute) const;
  /// Forward FLOPs of all projections of a token, and of its score with one key.
  [[nodiscard]] virtual double projection_flops() const;
  [[nodiscard]] virtual double score_flops() const;

  /// Queries, keys and values of the local tokens.
  [[nodiscard]] std::int64_t qkv_bytes() const { return z_.n * z_.e * (z_.q + z_.kv + z_.v); }
  /// Gate of the attention output (--attention-output-gate).
  [[nodiscard]] std::int64_t gate_bytes() const {
    return z_.m.attention_output_gate ? z_.n * z_.e * z_.q : 0;
  }
  /// Extra bytes of queries, keys and values in context-parallel attention.
  [[nodiscard]] std::int64_t extra_exchanged_qkv() const;
  [[nodiscard]] bool recomputes_core() const { return z_.recomputes("core_attn"); }
  /// Whether value heads narrower or wider than query heads are padded: the CPU kernel needs equal widths.
  [[nodiscard]] bool pads_value_heads() const;
  /// All-to-all of queries, keys and values from sequence to head sharding, with reordering.
  void add_qkv_all_to_all(BlockCompute& compute) const;

  LayerTraits layer_;

 private:
  [[nodiscard]] std::int64_t core_saved() const;
  [[nodiscard]] std::int64_t saved_scores() const;
  [[nodiscard]] std::int64_t output_copies() const;
  [[nodiscard]] std::int64_t mask_bytes() const;
  [[nodiscard]] bool saves_scores() const;
  [[nodiscard]] std::int64_t core_workspace() const;
  [[nodiscard]] std::int64_t document_workspace(bool backward) const;
  [[nodiscard]] bool has_variable_length_kernel() const;
  [[nodiscard]] std::int64_t ring_workspace() const;
  [[nodiscard]] std::int64_t extra_qkv_copies() const;
  [[nodiscard]] bool has_kv_block_kernel() const;
  [[nodiscard]] std::int64_t block_scores(bool backward) const;
  [[nodiscard]] std::int64_t exchanged_kv_channels() const;
  [[nodiscard]] std::int64_t exchanged_qkv_channels() const;

  void gate_backward(LayerTracker& tracker) const;
  void add_scores(BlockCompute& compute, AttentionKernel kernel) const;
  void add_relative_bias(BlockCompute& compute) const;
  void add_context(BlockCompute& compute) const;
  void add_kv_blocks(BlockCompute& compute) const;
};

/// Attention scores of all local heads.
std::int64_t score_bytes(const Sizes& z);

}  // namespace colonnade::cost
