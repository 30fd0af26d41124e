// Blockwise attention over context-parallel ranks: this rank's two chunks of each sequence attend to all
// earlier keys.
// Source: Liu et al. 2023 (ring attention); Megatron's --cp-comm-type p2p and all_gather.
#pragma once

#include <string>

#include "colonnade/comm/group.h"
#include "colonnade/ops/attention.h"

namespace colonnade::layers {

struct BlockwiseArgs {
  comm::Group group;        ///< rank r of k holds chunks r and 2k-1-r of the 2k chunks of each sequence
  bool all_gather = false;  ///< all-gather keys and values; false: p2p around a ring
  ops::BlockArgs scores;    ///< softmax scale, soft cap and dropout
  layout::Documents documents = {};  ///< of full sequences: no query looks beyond its own
  std::int64_t window = 0;           ///< W > 0: a query attends to itself and W earlier positions
  ops::Sinks sinks = {};             ///< added to the softmax denominator after all keys
  std::string name;                  ///< layer name, for its messages
  /// [n], raised in the forward pass to the largest score of each head (ops::max_scores); undefined: not
  /// measured.
  at::Tensor max_scores = {};
};

/// Causal attention: q [b, n, s, d], k and v [b, g, s, d] of this rank's tokens -> [s, b, n * d].
///
/// A rank's queries attend to three shapes of key blocks: its own (causal), all chunks before its first (all
/// queries, no mask) and those between its two (second query chunk only, no mask). The work is equal on all
/// ranks. Documents and windows divide a block into tiles (layout::attention_tiles), and pairs without a
/// visible key are not computed. Tiles are merged by their log-sum-exp, in fp32.
///
/// Communication, with B bytes of k and v per rank. Ring: each rank sends (k-1) B forward, overlapped with
/// the previous block's attention; the same backward, and k times the fp32 gradients, the last time to the
/// owner. All-gather: k B forward and again backward, and a reduce-scatter of the fp32 gradients. Saved for
/// backward: q, k, v, the output and one log-sum-exp per query.
at::Tensor blockwise_attention(const ops::Qkv& qkv, const BlockwiseArgs& args);

}  // namespace colonnade::layers
