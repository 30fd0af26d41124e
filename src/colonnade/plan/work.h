// What one rank computes and moves for one micro-batch, by kind of block: a function each, which returns the
// products of matrices, the FLOPs of attention and the bytes of elementwise passes. step_time.h puts times to
// them. A new kind of layer is a new function here and a line in stage_work.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/plan/stages.h"

namespace colonnade::plan {

/// How a linear layer is cut over the tensor ranks.
enum class LinearCut : std::uint8_t {
  kColumns,  ///< its output is cut: what it reads is gathered in front of it, its gradient summed behind it
  kRows,     ///< its input is cut: what it makes is summed behind it, its gradient gathered in front of it
};

/// A linear layer on one rank: [m, k] x [k, n] forward; backward two more of the same size.
struct Product {
  const char* name;
  double m, n, k;
  LinearCut cut;
  double exchanged;  ///< bytes of a whole activation that the tensor ranks gather or sum at its uncut side
};

/// Of one micro-batch on one rank. Passes over memory are counted as the fused kernels of ops/ make them.
struct Work {
  std::vector<Product> products;
  double attention_flops = 0;  ///< scores and values forward, causal half
  double forward_bytes = 0, backward_bytes = 0;
  int forward_kernels = 0, backward_kernels = 0;  ///< elementwise ones
  double summed = 0;  ///< bytes of activations that the tensor ranks sum forward and gather backward, without
                      ///< a product to hide beside
};

/// With n = s b tokens, r = n / t with sequence parallelism and n without, element size e, t tensor ranks:
/// reads and writes r h e of rows and positions.
Work embedding_work(const config::Run& run);
/// Norm with residual (r h e four times a pass), qkv, rotary (n (q + kv) e / t twice), attention, proj.
Work attention_work(const config::Run& run);
/// Norm with residual, fc1, activation (reads fc1's output, writes fc2's input), fc2.
Work mlp_work(const config::Run& run);
/// Norm, output layer, loss (two reads of the logits forward; a read and a write backward).
Work head_work(const config::Run& run);

/// The parts of a virtual stage, each with how often it is there.
struct RepeatedWork {
  Work work;
  double times;
  bool layer = false;  ///< of a layer
  double again = 0;    ///< how often its forward pass is repeated in the backward pass
};
std::vector<RepeatedWork> stage_work(const config::Run& run, const StageBlocks& stage);

}  // namespace colonnade::plan
