// Scaled dot-product attention with grouped queries, masks, sinks, soft caps and dropout.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "colonnade/layout/attention_tiles.h"
#include "colonnade/ops/dropout.h"
#include "colonnade/ops/rotary.h"
#include "colonnade/tensor/parameter.h"

namespace colonnade::ops {

/// Attention sinks: one extra logit per head in the softmax.
struct Sinks {
  tensor::Parameter* learned = nullptr;  ///< [n], or more heads, of which [first, first + n) are used
  std::int64_t first = 0;
  bool off_by_one = false;  ///< fixed logits of 0 instead: every softmax denominator gains 1
  [[nodiscard]] bool any() const { return learned != nullptr || off_by_one; }
};

struct AttentionArgs {
  double scale = 1.0;  ///< factor on the scores, usually 1 / sqrt(d)
  /// Factor by which q is already divided and the scores are multiplied again; if scores are materialized in
  /// the dtype of q, only after subtracting the row maximum, so that none overflows.
  double layer_scaling = 1.0;
  bool causal = true;       ///< causal mask, aligned to the end of the keys
  std::int64_t window = 0;  ///< W > 0: a query attends to itself and W earlier positions; needs causal
  at::Tensor bias;  ///< [1, n, s, t], added to the scaled scores; differentiable; materializes all scores
  at::Tensor mask;  ///< bool [b or 1, 1, s, t], true = masked out, in addition to causal; or undefined
  /// Documents that a query does not look beyond: tiles instead of a mask. Needs causal and t = s.
  layout::Documents documents;
  at::Tensor cu_seqlens;  ///< their bounds as int32 on the device, for kernels; used on CUDA
  double dropout = 0;     ///< > 0 materializes all scores
  DropoutKey key;         ///< used if dropout > 0: sequence offset and length, first head, samples
  Sinks sinks;
  double softcap = 0;  ///< c > 0: scores become c tanh(scores / c) before masks; materializes all scores
};

/// Attention output over one block of keys: softmax(scores) v over these keys only, and the log-sum-exp of
/// the scores for merging blocks. Scores and sums are fp32 (float64 for float64).
struct BlockOutput {
  at::Tensor y;    ///< [b, n, s, d]
  at::Tensor lse;  ///< [b, n, s]
};

/// Parameters of block attention.
struct BlockArgs {
  double scale = 1.0;   ///< as in AttentionArgs, with layer_scaling multiplied in
  double softcap = 0;   ///< as in AttentionArgs; materializes the scores of a query chunk
  double dropout = 0;   ///< on the weights, not on the lse; materializes scores as well
  DropoutKey key = {};  ///< used if dropout > 0: sequence length, first head, samples
};

/// Mask of a key block, and positions of queries and keys in their sequence.
struct BlockMask {
  bool causal = false;     ///< query i attends to keys 0 .. i; needs equal numbers of queries and keys
  at::Tensor masked = {};  ///< bool [b or 1, 1, s, t], true = masked out, in addition to causal; or undefined
  std::vector<layout::TokenSpan> queries = {}, keys = {};  ///< concatenated chunks; used if dropout > 0
};

/// Attention of the queries to one block of keys, for autograd functions that get the keys of a sequence
/// block by block; not differentiable. A query without visible keys in the block gets a negligible
/// log-sum-exp. Uses LibTorch's flash kernels on the CPU, and on CUDA (Ampere and later) for 16-bit dtypes,
/// head sizes 8, 16, ... 256 and no mask; otherwise, and with a soft cap or dropout, materializes scores.
BlockOutput attention_block(const Qkv& qkv, const BlockArgs& args, const BlockMask& mask);
/// The same by matmuls on any device, for a chunk of queries at a time: scores in fp32 (float64 for float64),
/// in chunks that cost::block_scores counts.
BlockOutput attention_block_by_scores(const Qkv& qkv, const BlockArgs& args, const BlockMask& mask);

/// Queries, keys and values of a tile, as views.
Qkv tile_heads(const Qkv& qkv, const layout::AttentionTile& tile);
/// Rows and queries of a tile of x [b, n, s, ...], as a view.
at::Tensor tile_queries(const at::Tensor& x, const layout::AttentionTile& tile);
/// Mask of a tile; a sliding window of `window` earlier positions costs a mask of its size.
BlockMask tile_mask(const layout::AttentionTile& tile, std::int64_t window, at::Device device);
/// Parameters of the rows of a tile.
BlockArgs tile_args(const BlockArgs& args, const layout::AttentionTile& tile);
/// Largest scaled and masked score of each head [n], before soft cap and dropout, in fp32 (float64 for
/// float64): max over b, s and t of scale q k^T. Not differentiable; about kMaxTrackedScores scores exist at
/// a time. Uninitialized on meta. A head without visible keys has a large negative score.
at::Tensor max_scores(const Qkv& qkv, const BlockArgs& args, const BlockMask& mask);
inline constexpr std::int64_t kMaxTrackedScores = std::int64_t{1} << 22;

/// Merges the output of another key block for the same queries in place: lse = log(exp(into.lse) +
/// exp(more.lse)), and outputs weighted accordingly. into.y has the dtype of lse; both may be views.
void merge_block(const BlockOutput& into, const BlockOutput& more);

/// Applies sinks in place after all blocks are merged; `into.y` has the dtype of lse.
void merge_sinks(const BlockOutput& into, const Sinks& sinks);
/// Accumulates the gradient of learned sinks, from the output and lse that include them.
void merge_sinks_backward(const at::Tensor& grad_y, const BlockOutput& merged, const Sinks& sinks);

/// Gradients of q, k and v through this block, from the output and lse over all blocks.
Qkv attention_block_backward(const at::Tensor& grad_y, const Qkv& qkv, const BlockOutput& merged,
                             const BlockArgs& args, const BlockMask& mask);
Qkv attention_block_backward_by_scores(const at::Tensor& grad_y, const Qkv& qkv, const BlockOutput& merged,
                                       const BlockArgs& args, const BlockMask& mask);

/// softmax(scale * layer_scaling * q k^T + masks) v; the heads of a group share key and value.
///   q [b, n, s, d], k [b, g, t, d], v [b, g, t, w] with t >= s (t > s: queries are the last s of t
///   positions, as with a key-value cache)  ->  [s, b, n*w]
/// Uses LibTorch's flash attention on the CPU, and its flash, cuDNN or memory-efficient kernels on CUDA: no
/// score matrix is materialized, and grouped keys are not repeated in memory. A window, a mask, or several
/// queries against a longer cache cost one [b or 1, 1, s, t] mask in the dtype of q. The CPU kernel needs
/// equal head sizes: if w differs from d, the smaller is zero-padded within each pass, and only q, k, v and
/// the result are saved for backward. Every query must attend to at least one key.
///
/// Documents cost no mask: each is attended to on its own (layout::attention_tiles), on CUDA in one call of
/// the variable-length flash kernel for 16-bit dtypes and head sizes 8, 16, ... 256. Saved for backward: q,
/// k, v, the result and one log-sum-exp per query, also with a window, a soft cap or dropout, whose masks and
/// scores have the size of a tile.
///
/// A sink z adds exp(z) to the softmax denominator and nothing to the values. On the CPU it costs one pass
/// over the output: with L the log-sum-exp of the scores and L' = ln(e^L + e^z), the output is scaled by e^(L
/// - L'), and the kernel's backward is exact with L' in place of L; dz = -sum of e^(z - L') dy.y over the
/// rows of a head. On CUDA sinks materialize all scores, which is slower, as soft caps do on both. Sinks and
/// dropout cannot be combined. Source: Xiao et al. 2023; Gemma 2 2024 (soft cap).
at::Tensor attention(const Qkv& qkv, const AttentionArgs& args);

}  // namespace colonnade::ops
