// Core attention: scores, softmax and the weighted sum of values over this rank's heads. All kinds of
// attention share it; they differ in how they compute queries, keys and values.
// Source: Megatron's core/transformer/dot_product_attention.py.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "colonnade/layers/context.h"
#include "colonnade/ops/dropout.h"
#include "colonnade/ops/relative_bias.h"
#include "colonnade/ops/rotary.h"
#include "colonnade/tensor/block.h"

namespace colonnade::layers {

/// Relative position bias of this rank's heads (T5).
struct RelativeBias {
  tensor::Parameter* table = nullptr;  ///< null: no bias
  ops::RelativePositionBuckets distances;
};

/// softmax(scale * q k^T + mask) v over this rank's heads, within the documents of the batch, with the
/// layer's sliding window, logit soft cap and sinks: q [b, n / tp, s, d], k [b, G, s, d], v [b, G, s, w] ->
/// [s, b, n / tp * w] with G = max(1, g / tp). During generation the pass's KV cache holds keys and values of
/// earlier tokens. With context parallelism s counts this rank's tokens. --cp-comm-type of the layer selects
/// all-to-all (Ulysses, context_parallel/ulysses.h), blockwise attention over gathered or circulating keys
/// (context_parallel/blockwise_attention.h), or both, over the ranks that share the batch.
///
/// With --apply-query-key-layer-scaling queries are divided by their 1-based layer number N (layer_scaled())
/// and scores are multiplied by N: inside the fused kernels, which keep scores in fp32, and after subtracting
/// the row maximum where scores have the dtype of q. Scores up to 65504 N thus stay finite in fp16.
/// Megatron's own attention does this with every dtype (core/transformer/dot_product_attention.py);
/// Transformer Engine only in fp16 and only in its unfused attention (NVTE_APPLY_QK_LAYER_SCALING=1).
class CoreAttention {
 public:
  struct Args {
    std::int64_t layer = 0;                       ///< 0-based global layer number, key of the KV cache
    double scale = 1.0;                           ///< softmax scale
    std::string name;                             ///< names the dropout stream; the same in every layout
    std::optional<layout::ParamSpec> sinks = {};  ///< learned sinks, one per head
    bool causal = true;
    /// Batch key of padded keys, bool [b, t], true: masked for every query; not with context parallelism.
    std::optional<tensor::BatchKey> padding = {};
    RelativeBias bias = {};
    bool is_self_attention = false;  ///< scores are reported with Context::track_max_logits
  };
  CoreAttention(const config::Model& model, const Context& context, const Args& args);
  /// `q` of any shape as forward() expects it: with --apply-query-key-layer-scaling a new tensor
  /// q / Model::layer_number in the dtype of q, else `q` itself.
  [[nodiscard]] at::Tensor layer_scaled(const at::Tensor& q) const;
  /// Recomputes the heads of a forward pass without a graph, each in a storage of its own.
  using RecomputeHeads = std::function<ops::Qkv()>;
  /// With `recompute_heads` no head is saved: the backward pass recomputes them (recompute.h) and repeats
  /// their all-to-all.
  [[nodiscard]] at::Tensor forward(ops::Qkv heads, const tensor::Pass& pass,
                                   const RecomputeHeads& recompute_heads = {}) const;

  std::unique_ptr<tensor::Parameter> sinks;  ///< [n / tp]; null: not learned

 private:
  /// Context-parallel groups of this layer; groups of one without context parallelism.
  struct CpGroups {
    comm::Group heads, ring;  ///< all-to-all; p2p or all-gather
    bool all_gather = false;  ///< keys and values are all-gathered over `ring`, else sent around it
  };
  /// Groups by tensor::SequenceShare::ranks.
  static std::map<int, CpGroups> cp_groups(const ContextParallelGroups& cp, std::int64_t layer);
  /// Groups of the ranks that share the batch. Throws Error if no group has their number.
  [[nodiscard]] const CpGroups& cp_groups(const tensor::Pass& pass) const;

  /// Heads zero-padded to one width and, with all-to-all, exchanged from sequence shards to head shards.
  [[nodiscard]] ops::Qkv exchange_heads(ops::Qkv heads, const CpGroups& group) const;
  [[nodiscard]] at::Tensor context_parallel_attention(ops::Qkv heads, const tensor::Pass& pass,
                                                      const RecomputeHeads& recompute_heads) const;
  /// Attention of this rank's heads: over its shard of the sequence with a ring, else over the full sequence.
  [[nodiscard]] at::Tensor attend(const ops::Qkv& heads, const CpGroups& group,
                                  const tensor::Pass& pass) const;
  /// Whether a pass measures the largest score of each head. As in Megatron, only layers of the stacks do.
  [[nodiscard]] bool measures_scores(const tensor::Pass& pass) const {
    return tracks_max_logits_ && pass.training && pass.report != nullptr;
  }
  /// Reports the largest scores of the heads from global head `first` on.
  void report_scores(const at::Tensor& scores, std::int64_t first, const tensor::Pass& pass) const;
  /// Largest scores of heads over full sequences.
  [[nodiscard]] at::Tensor max_scores(const ops::Qkv& heads, const tensor::Pass& pass) const;
  /// Key of attention dropout for sequences of `length`, or of the batch's share, from head `first_head` on.
  [[nodiscard]] ops::DropoutKey attention_dropout_key(const tensor::Pass& pass, std::int64_t length,
                                                      std::int64_t first_head) const;

  bool recompute_;  ///< attention is recomputed in the backward pass
  bool causal_;
  std::optional<tensor::BatchKey> padding_;
  RelativeBias bias_;
  std::map<int, CpGroups> cp_groups_;
  std::string name_;
  std::int64_t layer_, window_, first_head_, all_heads_;
  double scale_, layer_scaling_, softcap_, dropout_;  ///< layer_scaling_: N, 1 without the flag
  bool sink_at_zero_, tracks_max_logits_;
  std::uint64_t dropout_key_;
};

/// Position ids of the batch as int64 [s, b]; undefined for 0 .. s-1.
at::Tensor positions_sb(const tensor::Pass& pass);

}  // namespace colonnade::layers
