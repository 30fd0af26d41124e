// What one rank computes and sends for a block and one micro-batch: matmuls, attention, bytes of elementwise
// kernels, and collectives. stage_time() turns them into seconds, plan_traffic() into bytes sent.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/layout/context_parallel.h"

namespace colonnade::cost {

/// Tensor-parallel sharding of a linear layer.
enum class LinearSharding : std::uint8_t {
  kColumns,     ///< column parallel: input gathered before it, input gradient reduced after it
  kRows,        ///< row parallel: output reduced after it, output gradient gathered before it
  kReplicated,  ///< replicated, or its communication is listed in BlockCompute::collectives
};

enum class MatmulKind : std::uint8_t {
  kPlain,
  kFp32,     ///< fp32 without tensor cores
  kGrouped,  ///< grouped GEMM: several weights in one kernel
};

/// A linear layer on one rank: [m, k] x [k, n] in forward; two more matmuls of the same size in backward.
struct Matmul {
  const char* name;
  double m, n, k;
  LinearSharding sharding;
  double comm_bytes = 0;  ///< bytes of the unsharded activation that tensor ranks gather or reduce
  MatmulKind kind = MatmulKind::kPlain;
  double count = 1;  ///< number of matmuls in a group
  bool operator==(const Matmul&) const = default;
};

/// Core attention of a rank's queries.
struct Attention {
  /// Forward FLOPs of QK^T and PV: the causal half, or the window if the kernel supports it; the full square
  /// for unfused attention and for kernels with an explicit mask.
  double flops = 0;
  /// Ranks of the KV ring; each hop overlaps attention to the previous block. Bytes of a hop: keys and
  /// values, and their fp32 gradients.
  int ring = 1;
  double kv_bytes = 0, kv_grad_bytes = 0;
  bool operator==(const Attention&) const = default;
};

/// Group of a collective.
enum class GroupKind : std::uint8_t {
  kTensor,
  kDispatch,         ///< ranks among which tokens are dispatched: ep x etp
  kContextAllToAll,  ///< context ranks that exchange sequence shards for heads
  kContextRing,      ///< context ranks that share keys and values
};
/// A collective without overlapped compute.
struct Collective {
  GroupKind group;
  bool all_to_all;        ///< else all-gather or reduce-scatter
  double bytes;           ///< all-to-all: bytes of one rank, its own split included; else total bytes
  int forward, backward;  ///< calls per pass
  /// Rows that the most loaded rank receives, relative to those it sends.
  double imbalance = 1;
  bool operator==(const Collective&) const = default;
};

/// Memory traffic is that of the fused kernels of ops/.
struct BlockCompute {
  std::vector<Matmul> matmuls;
  Attention attention;
  double forward_bytes = 0, backward_bytes = 0;
  int forward_kernels = 0, backward_kernels = 0;  ///< elementwise kernels
  std::vector<Collective> collectives;
  layout::LayerContextParallel context;  ///< groups of kContextAllToAll and kContextRing
  double topk = 1;                       ///< rows per token in an all-to-all of kDispatch

  bool operator==(const BlockCompute&) const = default;

  void add_elementwise(double forward, double backward, int kernels, int kernels_backward) {
    forward_bytes += forward;
    backward_bytes += backward;
    forward_kernels += kernels;
    backward_kernels += kernels_backward;
  }
};

/// Attention with soft cap, dropout or sinks: scores materialized in memory, or in a fused kernel, which
/// supports windows too.
enum class AttentionKernel : std::uint8_t { kUnfused, kFused };

/// Compute with its number of repetitions for one micro-batch.
struct RepeatedCompute {
  BlockCompute compute;
  double times = 1;       ///< forward and backward passes
  bool is_layer = false;  ///< part of a transformer layer
  double recomputed = 0;  ///< forward passes that backward repeats
};

/// FLOPs of one sample's forward pass, summed over all ranks, as Megatron counts them (cost/flops.h).
struct ForwardFlops {
  double linears = 0, attention = 0, norms = 0;
  ForwardFlops& operator+=(const ForwardFlops& other) {
    linears += other.linears;
    attention += other.attention;
    norms += other.norms;
    return *this;
  }
};

}  // namespace colonnade::cost
