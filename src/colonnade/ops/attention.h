// Scaled dot product attention over heads that lie apart, with grouped queries.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "colonnade/ops/dropout.h"
#include "colonnade/ops/rotary.h"

namespace colonnade::ops {

struct AttentionArgs {
  double scale = 1.0;       ///< scores are multiplied by it; 1 / sqrt(d) as a rule
  bool causal = true;       ///< a query sees its own and earlier positions, aligned at the end of the keys
  std::int64_t window = 0;  ///< W > 0: only W earlier positions and itself; needs causal
  at::Tensor mask;          ///< bool [b or 1, 1, q, k], true = hidden, on top of causal; or undefined
  double dropout = 0;       ///< > 0 takes a path that keeps all scores in memory, and says so once
  DropoutKey key;           ///< read when dropout > 0; sequence offset and length, first head, samples
};

/// softmax(scale * q k^T + masks) v, heads of one group sharing its key and value.
///   q [b, n, s, d], k and v [b, g, t, d] with t >= s (t > s: the last s of t positions ask, as with a
///   cache of keys)  ->  [s, b, n*d]
/// On the CPU LibTorch's flash attention, on CUDA its flash, cuDNN or memory-efficient kernels; no
/// score matrix is kept and keys are not repeated in memory. A window or mask that is given, and
/// several queries against a longer cache, cost one [b or 1, 1, s, t] mask of the type of q.
/// Every query must see at least one key.
at::Tensor attention(const Qkv& qkv, const AttentionArgs& args);

}  // namespace colonnade::ops
