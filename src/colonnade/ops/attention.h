// Scaled dot product attention over heads that lie apart, with grouped queries.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "colonnade/layout/context_parallel.h"
#include "colonnade/ops/dropout.h"
#include "colonnade/ops/rotary.h"
#include "colonnade/tensor/parameter.h"

namespace colonnade::ops {

/// A logit per head that its scores compete with.
struct Sinks {
  tensor::Parameter* learned = nullptr;  ///< [n], or of more heads, of which these are [first, first + n)
  std::int64_t first = 0;
  bool at_zero = false;  ///< all are 0 instead: exp(0) takes part in every sum
  [[nodiscard]] bool any() const { return learned != nullptr || at_zero; }
};

struct AttentionArgs {
  double scale = 1.0;  ///< scores are multiplied by it; 1 / sqrt(d) as a rule
  /// q comes divided by it and scores are multiplied by it as well: where they are written in the dtype of q
  /// after the largest of a row is subtracted, so that none overflows.
  double layer_scaling = 1.0;
  bool causal = true;       ///< a query sees its own and earlier positions, aligned at the end of the keys
  std::int64_t window = 0;  ///< W > 0: only W earlier positions and itself; needs causal
  at::Tensor bias;  ///< [1, n, s, t], added to the scaled scores; differentiated; keeps all scores in memory
  at::Tensor mask;  ///< bool [b or 1, 1, q, k], true = hidden, on top of causal; or undefined
  double dropout = 0;  ///< > 0 takes a path that keeps all scores in memory, and says so once
  DropoutKey key;      ///< read when dropout > 0; sequence offset and length, first head, samples
  Sinks sinks;
  double softcap = 0;  ///< c > 0: scores become c tanh(scores / c) before masks; keeps all scores in memory
};

/// What the keys of one block give their queries: softmax(scores) v over them alone, and the logarithm of the
/// sum of exp(scores) by which blocks are joined. Scores and sums are kept in fp32 (float64 for float64).
struct BlockOutput {
  at::Tensor y;    ///< [b, n, s, d]
  at::Tensor lse;  ///< [b, n, s]
};

/// How scores of blocks become weights.
struct BlockArgs {
  double scale = 1.0;   ///< as in AttentionArgs, all of them
  double softcap = 0;   ///< makes all scores of a piece of the block
  double dropout = 0;   ///< of the weights, not of the sums by which blocks are joined; makes scores too
  DropoutKey key = {};  ///< read when dropout > 0: length of the sequence, first head, samples
};

/// Which keys of a block a query sees, and where both are of their sequence.
struct BlockMask {
  bool causal = false;     ///< query i keys 0 .. i; needs as many keys as queries
  at::Tensor hidden = {};  ///< bool [b or 1, 1, s, t], true = hidden, on top of causal; or undefined
  std::vector<layout::Chunk> queries = {},
                             keys = {};  ///< one behind the other; read when something is dropped
};

/// Attention of the queries to one block of keys, for rules that have the keys of a sequence block by block:
/// not differentiable. A query that sees no key of the block gets a sum of nearly nothing. LibTorch's flash
/// kernels on the CPU, and on CUDA (Ampere and later) for 16 bits, heads of 8, 16, ... 256 channels and no
/// hidden keys; else, and with a cap or dropout, by scores.
BlockOutput attention_block(const Qkv& qkv, const BlockArgs& args, const BlockMask& mask);
/// The same by products, on any device, some queries at a time: scores in fp32 (float64 for float64), in
/// pieces that cost::block_scores counts.
BlockOutput attention_block_by_scores(const Qkv& qkv, const BlockArgs& args, const BlockMask& mask);

/// Joins another block of keys for the same queries: lse = log(exp(into.lse) + exp(more.lse)) and the outputs
/// weighted by their shares, in place. into.y is of the type of lse; both may be views.
void join_block(const BlockOutput& into, const BlockOutput& more);

/// Lets sinks take their part when all blocks are joined, in place; `into.y` is of the type of lse.
void join_sinks(const BlockOutput& into, const Sinks& sinks);
/// Adds the gradient of learned sinks, out of the output and sums with them.
void join_sinks_backward(const at::Tensor& grad_y, const BlockOutput& whole, const Sinks& sinks);

/// The gradients of q, k and v that go through this block, out of the output and sums over all blocks.
Qkv attention_block_backward(const at::Tensor& grad_y, const Qkv& qkv, const BlockOutput& whole,
                             const BlockArgs& args, const BlockMask& mask);
Qkv attention_block_backward_by_scores(const at::Tensor& grad_y, const Qkv& qkv, const BlockOutput& whole,
                                       const BlockArgs& args, const BlockMask& mask);

/// softmax(scale * layer_scaling * q k^T + masks) v, heads of one group sharing its key and value.
///   q [b, n, s, d], k [b, g, t, d], v [b, g, t, w] with t >= s (t > s: the last s of t positions ask, as
///   with a cache of keys)  ->  [s, b, n*w]
/// On the CPU LibTorch's flash attention, on CUDA its flash, cuDNN or memory-efficient kernels; no
/// score matrix is kept and keys are not repeated in memory. A window or mask that is given, and
/// several queries against a longer cache, cost one [b or 1, 1, s, t] mask of the type of q.
/// The CPU's kernel knows one size of head only: where w is another than d, the narrower is filled up with
/// zeros while a pass runs, and backward keeps q, k, v and the result alone.
/// Every query must see at least one key.
///
/// A sink z adds exp(z) to the sum under the softmax and nothing to the values. On the CPU it costs one pass
/// over the output: with L the log-sum-exp of the scores and L' = ln(e^L + e^z), the output is e^(L - L')
/// times that without, and the kernel's backward is right for L' in place of L; dz = -sum of e^(z - L') dy.y
/// over the rows of a head. On CUDA it takes the path that keeps all scores, which is slower, as a soft cap
/// does on both. Not together with dropout. Source: Xiao et al. 2023; Gemma 2 2024 (soft cap).
at::Tensor attention(const Qkv& qkv, const AttentionArgs& args);

}  // namespace colonnade::ops
