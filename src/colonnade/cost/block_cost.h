// Compute, memory traffic and communication of one rank for one micro-batch, with one function per kind of
// block. It returns the block's matmuls, attention, elementwise bytes and collectives; stage_time() turns
// them into times. A new kind of layer needs a new function here and a line in stage_cost.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/layout/context_parallel.h"
#include "colonnade/layout/stages.h"

namespace colonnade::cost {

/// Tensor-parallel sharding of a linear layer.
enum class LinearSharding : std::uint8_t {
  kColumns,     ///< column parallel: input gathered before it, input gradient reduced after it
  kRows,        ///< row parallel: output reduced after it, output gradient gathered before it
  kReplicated,  ///< replicated, or its communication is listed in BlockCost::collectives
};

enum class MatmulKind : std::uint8_t {
  kPlain,
  kFp32,     ///< fp32 without tensor cores
  kGrouped,  ///< grouped GEMM: local experts in one kernel
};

/// A linear layer on one rank: [m, k] x [k, n] in forward; two more matmuls of the same size in backward.
struct Matmul {
  const char* name;
  double m, n, k;
  LinearSharding sharding;
  double comm_bytes = 0;  ///< bytes of the unsharded activation that tensor ranks gather or reduce
  MatmulKind kind = MatmulKind::kPlain;
  double count = 1;  ///< number of matmuls in a group
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
};

/// Group of a collective.
enum class GroupKind : std::uint8_t {
  kTensor,
  kExperts,          ///< expert and expert tensor ranks
  kContextAllToAll,  ///< context ranks that exchange sequence shards for heads
  kContextRing,      ///< context ranks that share keys and values
};
/// A collective without overlapped compute.
struct Collective {
  GroupKind group;
  bool all_to_all;        ///< else all-gather or reduce-scatter
  double bytes;           ///< all-to-all: bytes of one rank, its own split included; else total bytes
  int forward, backward;  ///< calls per pass
  /// Dispatch and combine: rows that the most loaded rank receives, relative to those it sends.
  double imbalance = 1;
};

/// Cost of one micro-batch on one rank. Memory traffic is that of the fused kernels of ops/.
struct BlockCost {
  std::vector<Matmul> matmuls;
  Attention attention;
  double forward_bytes = 0, backward_bytes = 0;
  int forward_kernels = 0, backward_kernels = 0;  ///< elementwise kernels
  std::vector<Collective> collectives;
  layout::LayerContextParallel context;  ///< groups of kContextAllToAll and kContextRing
  double topk = 1;                       ///< experts per token

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

/// Embedding. With n = s b / c tokens for c context ranks, r = n / t with sequence parallelism and n without,
/// element size e, t tensor ranks: reads and writes r h e of embedding rows and positions.
BlockCost embedding_cost(const config::Run& run);
/// Norm with residual sum (4 r h e per pass), qkv, rotary (n (q + kv) e / t twice), attention, proj. MLA has
/// down-projections, latent norms and up-projections instead. Unfused scores are read or written eleven
/// times. Context parallelism adds the communication of context_layer for `layer`.
BlockCost attention_cost(const config::Run& run, std::int64_t layer = 0,
                         AttentionKernel kernel = AttentionKernel::kUnfused);
/// Core attention alone, with its context-parallel communication.
BlockCost core_attention_cost(const config::Run& run, std::int64_t layer = 0,
                              AttentionKernel kernel = AttentionKernel::kUnfused);
/// Up-projections of MLA from the normed latents, with the context-parallel all-to-all if core attention is
/// not recomputed too.
BlockCost latent_up_projection_cost(const config::Run& run, std::int64_t layer = 0);
/// Cross-attention of a decoder layer, with n decoder and t encoder tokens: norm with residual sum, q (n h
/// q/t), keys and values (t h 2 q/t), full attention, proj.
BlockCost cross_attention_cost(const config::Run& run, AttentionKernel kernel = AttentionKernel::kUnfused);
/// Core cross-attention alone.
BlockCost core_cross_attention_cost(const config::Run& run,
                                    AttentionKernel kernel = AttentionKernel::kUnfused);
/// Norm with residual sum, fc1, activation (reads fc1's output, writes fc2's input), fc2.
BlockCost mlp_cost(const config::Run& run);
/// MoE layer: norm, fp32 router, dispatch and combine, local experts, shared experts; for the most loaded
/// rank if routing is assumed to be imbalanced.
BlockCost moe_cost(const config::Run& run);
/// Activation of the routed experts alone.
BlockCost expert_activation_cost(const config::Run& run);
/// Shared experts alone.
BlockCost shared_experts_cost(const config::Run& run);
/// Output layer and loss (two reads of the logits forward; a read and a write backward); for BERT also the
/// language-model head transform and the binary head.
BlockCost head_cost(const config::Run& run);
/// Final norm, once per predicted token.
BlockCost final_norm_cost(const config::Run& run);
/// Concatenation of the hidden states of all MTP depths for a head on another stage, and of their gradients
/// there.
BlockCost state_concat_cost(const config::Run& run, const layout::StageBlocks& stage);
/// One MTP depth without its embedding, layer and final norm: two norms, concatenation to [r, 2 h],
/// projection.
BlockCost mtp_projection_cost(const config::Run& run);

/// A block of a virtual stage with its number of repetitions. Encoder and decoder layers process sequences of
/// two lengths.
struct RepeatedBlock {
  BlockCost cost;
  double times;
  bool is_layer = false;  ///< part of a transformer layer
  double recomputed = 0;  ///< number of forward passes repeated in backward
};
std::vector<RepeatedBlock> stage_cost(const config::Run& run, const layout::StageBlocks& stage,
                                      AttentionKernel kernel = AttentionKernel::kUnfused);

}  // namespace colonnade::cost
