// What one rank computes, moves and sends for one micro-batch, by kind of block: a function each, which
// returns the products of matrices, attention, the bytes of elementwise passes and the collectives.
// work_time.h puts times to them. A new kind of layer is a new function here and a line in stage_work.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/layout/context_parallel.h"
#include "colonnade/layout/stages.h"

namespace colonnade::cost {

/// How a linear layer is cut over the tensor ranks.
enum class LinearCut : std::uint8_t {
  kColumns,  ///< its output is cut: what it reads is gathered in front of it, its gradient summed behind it
  kRows,     ///< its input is cut: what it makes is summed behind it, its gradient gathered in front of it
  kWhole,    ///< not cut, or its sums are collectives of the work
};

enum class ProductKind : std::uint8_t {
  kPlain,
  kWide,     ///< in fp32, without tensor cores
  kGrouped,  ///< of experts, each with its own matrix, in one kernel
};

/// A linear layer on one rank: [m, k] x [k, n] forward; backward two more of the same size.
struct Product {
  const char* name;
  double m, n, k;
  LinearCut cut;
  double exchanged =
      0;  ///< bytes of a whole activation that the tensor ranks gather or sum at its uncut side
  ProductKind kind = ProductKind::kPlain;
  double times = 1;  ///< of a group: so many of this size
};

/// Attention of a rank's queries to all earlier keys.
struct Attention {
  /// Scores and values forward: the causal half, or what a window shows where the kernel knows of it; all of
  /// the square where scores are kept in memory or a mask is handed to the kernel.
  double flops = 0;
  /// Ranks among which keys and values go round, each block of them beside the attention to the one before:
  /// bytes of a hop with keys and values, and with their fp32 gradients.
  int ring = 1;
  double hop = 0, gradient_hop = 0;
};

/// Who takes part in a collective.
enum class Among : std::uint8_t {
  kTensor,
  kExperts,  ///< ranks of expert and expert tensor parallelism
  kHeads,    ///< context ranks that exchange heads for positions
  kRing,     ///< context ranks that gather keys
};
/// Nothing is computed beside it.
struct Collective {
  Among among;
  bool exchange;  ///< each rank sends every other one its part; else gathered, or summed and scattered
  double bytes;   ///< of an exchange: what a rank sends, its own part included; else in all
  int forward, backward;  ///< how often
  /// Of an exchange that goes there and back by turns: what the fullest rank receives there, and sends back,
  /// over what it sends.
  double fullest = 1;
};

/// Of one micro-batch on one rank. Passes over memory are counted as the fused kernels of ops/ make them.
struct Work {
  std::vector<Product> products;
  Attention attention;
  double forward_bytes = 0, backward_bytes = 0;
  int forward_kernels = 0, backward_kernels = 0;  ///< elementwise ones
  std::vector<Collective> collectives;
  layout::ContextLayer context;  ///< the groups of kHeads and kRing
  double choices = 1;            ///< experts of a token

  void pass(double forward, double backward, int kernels, int kernels_backward) {
    forward_bytes += forward;
    backward_bytes += backward;
    forward_kernels += kernels;
    backward_kernels += kernels_backward;
  }
};

/// Where a program has attention's scores when they are under a soft cap or dropout or compete with sinks;
/// with kKernel its kernel knows of windows too.
enum class ScoresIn : std::uint8_t { kMemory, kKernel };

/// With n = s b / c tokens for c context ranks, r = n / t with sequence parallelism and n without, element
/// size e, t tensor ranks: reads and writes r h e of rows and positions.
Work embedding_work(const config::Run& run);
/// Norm with residual (r h e four times a pass), qkv, rotary (n (q + kv) e / t twice), attention, proj; with
/// narrow vectors (work_attention.cpp) their projections, norms and the heads made of them. Scores in memory
/// are passed over eleven times. Context ranks exchange heads, hand keys on or gather them, as context_layer
/// says of `layer`.
Work attention_work(const config::Run& run, std::int64_t layer = 0, ScoresIn scores = ScoresIn::kMemory);
/// Of it attention itself, with what context ranks do for it.
Work core_attention_work(const config::Run& run, std::int64_t layer = 0, ScoresIn scores = ScoresIn::kMemory);
/// Of multi-latent attention queries, keys and values out of the normed narrow vectors, exchanged for
/// positions where the layer's attention is not made again with them and keeps them so.
Work narrow_heads_work(const config::Run& run, std::int64_t layer = 0);
/// Of a decoder's layer to its encoder, whose t tokens are beside the decoder's n: norm with residual, q (n h
/// q/t), keys and values (t h 2 q/t), attention to all of them, proj; and of it attention itself.
Work cross_attention_work(const config::Run& run, ScoresIn scores = ScoresIn::kMemory);
Work core_cross_attention_work(const config::Run& run, ScoresIn scores = ScoresIn::kMemory);
/// Norm with residual, fc1, activation (reads fc1's output, writes fc2's input), fc2.
Work mlp_work(const config::Run& run);
/// In place of an MLP: norm, router in fp32, rows to their experts and back, products of a rank's experts,
/// shared experts, on the fullest rank where routing is assumed to be uneven; see work_experts.cpp.
Work experts_work(const config::Run& run);
/// Of it the experts' activation, and the shared experts.
Work expert_activation_work(const config::Run& run);
Work shared_experts_work(const config::Run& run);
/// Output layer, in front of it what a BERT transforms and beside it its binary head, loss (two reads of the
/// logits forward; a read and a write backward).
Work head_work(const config::Run& run);
/// The norm in front of them, of each token that is predicted.
Work final_norm_work(const config::Run& run);
/// Hidden states of each token laid one after the other for a head in another stage, and there their
/// gradients.
Work joined_states_work(const config::Run& run, const layout::StageBlocks& stage);
/// Of a further token, besides its embedding, layer and norm: two norms, [r, 2 h] laid together, its product.
Work prediction_work(const config::Run& run);

/// The parts of a virtual stage, each with how often it is there. Layers of an encoder and of its decoder
/// work on sequences of two lengths.
struct RepeatedWork {
  Work work;
  double times;
  bool layer = false;  ///< of a layer
  double again = 0;    ///< how often its forward pass is repeated in the backward pass
};
std::vector<RepeatedWork> stage_work(const config::Run& run, const layout::StageBlocks& stage,
                                     ScoresIn scores = ScoresIn::kMemory);

}  // namespace colonnade::cost
