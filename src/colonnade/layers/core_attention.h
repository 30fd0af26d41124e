// What lies between the projections of attention: scores, softmax and the weighted sum of values over this
// rank's heads. Kinds of attention differ in how they make queries, keys and values; this part is theirs all.
// Source: Megatron's core/transformer/dot_product_attention.py.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "colonnade/layers/context.h"
#include "colonnade/ops/dropout.h"
#include "colonnade/ops/relative_bias.h"
#include "colonnade/ops/rotary.h"
#include "colonnade/tensor/block.h"

namespace colonnade::layers {

/// What relative positions add to the scores of this rank's heads.
struct RelativeBias {
  tensor::Parameter* table = nullptr;  ///< null: nothing
  ops::Distances distances;
};

/// softmax(scale * q k^T + masks) v, with the window of the layer, a soft cap of scores and sinks where the
/// settings have them, over the heads of this rank: q [b, n / tp, s, d], k [b, max(1, g / tp), s, d] and v
/// [b, max(1, g / tp), s, w] -> [s, b, n / tp * w]. While tokens are generated, keys and values of earlier
/// ones come out of the cache of the pass. With context parallelism s counts this rank's tokens: heads are
/// exchanged for positions (context_parallel/heads.h), keys come by in blocks (context_parallel/blocks.h), or
/// both, as --cp-comm-type says of the layer; among the ranks that share the batch.
///
/// With --apply-query-key-layer-scaling the queries come divided by the number N of their layer (divided()),
/// and the scores are multiplied by N: inside the fused kernels, which keep scores in fp32, and after the
/// largest score of the row is subtracted where scores are written in the dtype of q. So scores of N 65504
/// are finite in fp16. Megatron's own attention does so with every dtype
/// (core/transformer/dot_product_attention.py); Transformer Engine only in fp16 and only in its unfused
/// attention (NVTE_APPLY_QK_LAYER_SCALING=1).
class CoreAttention {
 public:
  struct Args {
    std::int64_t layer = 0;                       ///< 0-based global number: the place in the cache
    double scale = 1.0;                           ///< of the scores
    std::string name;                             ///< keys the dropout; the same in every layout
    std::optional<layout::ParamSpec> sinks = {};  ///< of the heads
    bool causal = true;
    /// Of the batch, bool and true where hidden: [b or 1, 1, s, t], or [b, t] of keys that no query sees.
    std::string mask = "attention_mask";
    RelativeBias bias = {};
  };
  CoreAttention(const config::Model& model, const Context& context, const Args& args);
  /// Queries as forward() reads them, in any shape: with --apply-query-key-layer-scaling a new tensor, each
  /// query divided by Model::layer_number in its own dtype, else `q` itself.
  [[nodiscard]] at::Tensor divided(const at::Tensor& q) const;
  /// Makes the heads of a forward pass once more, each alone in its memory, without a graph.
  using HeadsAgain = std::function<ops::Qkv()>;
  /// With `again` none of the heads is kept for the backward pass, which makes them of it (recompute.h) and
  /// exchanges them once more where they are read exchanged.
  [[nodiscard]] at::Tensor forward(ops::Qkv heads, const tensor::Pass& pass,
                                   const HeadsAgain& again = {}) const;

  std::unique_ptr<tensor::Parameter> sinks;  ///< [n / tp]; null: none is learned

 private:
  /// How the context ranks of this layer work together; groups of one without context parallelism.
  struct Across {
    comm::Group heads, ring;
    bool gathers = false;
  };
  /// By tensor::Share::ranks.
  static std::map<int, Across> across(const ContextRanks& cp, std::int64_t layer);
  /// Of those that share the batch. Throws Error for a number of them that has no group.
  [[nodiscard]] const Across& across(const tensor::Pass& pass) const;

  /// Heads as context ranks read them: of one width, the narrower of keys and values filled up with zeros,
  /// and exchanged for positions.
  [[nodiscard]] ops::Qkv exchanged(ops::Qkv heads, const Across& group) const;
  [[nodiscard]] at::Tensor exchange_and_attend(ops::Qkv heads, const tensor::Pass& pass,
                                               const HeadsAgain& again) const;
  /// This rank's heads over its part of the sequence, which is the whole where no keys come by in blocks.
  [[nodiscard]] at::Tensor attend(const ops::Qkv& heads, const Across& group, const tensor::Pass& pass) const;
  /// Of sequences of `length`, unless they say what they are of, from the number of a head on.
  [[nodiscard]] ops::DropoutKey key_of_dropped(const tensor::Pass& pass, std::int64_t length,
                                               std::int64_t first_head) const;

  bool again_;  ///< made again in the backward pass
  bool causal_;
  std::string mask_;
  RelativeBias bias_;
  std::map<int, Across> across_;
  std::string name_;
  std::int64_t layer_, window_, first_head_, all_heads_;
  double scale_, layer_scaling_, softcap_, dropout_;  ///< layer_scaling_: N, or 1 without it
  bool sink_at_zero_;
  std::uint64_t dropout_key_;
};

/// Places of the tokens in their sequences as int64 [s, b]; undefined for 0 .. s-1.
at::Tensor positions_sb(const tensor::Pass& pass);

}  // namespace colonnade::layers
