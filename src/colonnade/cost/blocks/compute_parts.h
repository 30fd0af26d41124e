// Sizes as floating-point numbers, and compute that several kinds of block share. Private to the block costs.
#pragma once

#include "colonnade/cost/blocks/compute.h"
#include "colonnade/cost/blocks/sizes.h"

namespace colonnade::cost {

/// Sizes of a block as double, in which FLOPs and bytes of a step do not overflow.
struct RealSizes {
  explicit RealSizes(const Sizes& z)
      : m(z.m),
        t(real(z.tp)),
        seq_length(real(z.seq_length)),
        n(real(z.n)),
        sequence_parallel(z.sequence_parallel),
        r(real(z.r)),
        e(real(z.e)),
        h(real(z.m.hidden_size)),
        heads(real(z.heads)),
        q(real(z.q)),
        kv(real(z.kv)),
        out(real(z.out)),
        fc1_per_ffn(real(z.fc1_per_ffn)),
        full_hidden(n * h * e),
        hidden(r * h * e),
        stream(real(z.stream)) {}

  static double real(std::int64_t number) { return static_cast<double>(number); }

  const config::Model& m;
  double t, seq_length;  ///< tensor ranks; tokens of a full sequence
  double n;              ///< tokens of a context rank
  bool sequence_parallel;
  double r;  ///< tokens between tensor-parallel regions
  double e, h, heads, q, kv, out;
  double fc1_per_ffn;  ///< fc1 columns per activation column
  double full_hidden;  ///< bytes of [n, h]
  double hidden;       ///< bytes of [r, h]
  double stream;       ///< bytes of [r, h] of the residual stream
};

/// Conversion of [r, h] to the dtype of the residual stream, and of its gradient back.
inline void add_conversion(BlockCompute& compute, const RealSizes& z) {
  compute.add_elementwise(z.hidden + z.stream, z.hidden + z.stream, 1, 1);
}

/// Norm fused with the residual sum. Forward reads the residual stream and the addend and writes both
/// results; backward reads two gradients and the input and writes one gradient, and where the residual stream
/// has another dtype a converted copy for the mixer.
inline void add_norm(BlockCompute& compute, const RealSizes& z) {
  compute.add_elementwise(2 * (z.hidden + z.stream), z.hidden + 3 * z.stream, 1, 2);
  if (z.stream != z.hidden) compute.add_elementwise(0, z.hidden + z.stream, 0, 1);
}

/// Norm of `bytes` alone: reads and writes them; backward reads a gradient and the input and writes one.
inline void add_plain_norm(BlockCompute& compute, double bytes) {
  compute.add_elementwise(2 * bytes, 3 * bytes, 1, 2);
}

/// Entry of a tensor-parallel region: all-gather forward and reduce-scatter of the gradient. Without sequence
/// parallelism only the gradient is all-reduced, which costs as much as both.
inline void add_gather(BlockCompute& compute, const RealSizes& z, double bytes) {
  compute.collectives.push_back(
      {GroupKind::kTensor, false, bytes, z.sequence_parallel ? 1 : 0, z.sequence_parallel ? 1 : 2});
}
/// Exit of a tensor-parallel region: reduce-scatter forward and all-gather of the gradient; or one all-reduce
/// forward.
inline void add_reduce(BlockCompute& compute, const RealSizes& z, double bytes) {
  compute.collectives.push_back(
      {GroupKind::kTensor, false, bytes, z.sequence_parallel ? 1 : 2, z.sequence_parallel ? 1 : 0});
}

}  // namespace colonnade::cost
