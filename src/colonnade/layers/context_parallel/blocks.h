// Attention of a rank's two chunks of each sequence to all earlier keys, which lie on other context ranks.
// Source: Liu et al. 2023 (ring attention); Megatron's --cp-comm-type p2p and all_gather.
#pragma once

#include <string>

#include "colonnade/comm/group.h"
#include "colonnade/ops/attention.h"

namespace colonnade::layers {

struct BlocksArgs {
  comm::Group group;        ///< rank r of k holds of 2k chunks of each sequence r and 2k-1-r
  bool gathers = false;     ///< keys and values of all ranks are gathered; else handed on in a ring
  ops::BlockArgs scores;    ///< what they go through
  std::int64_t window = 0;  ///< W > 0: a query sees only W earlier positions and itself
  ops::Sinks sinks = {};    ///< join the sums behind all keys
  std::string name;         ///< of the layer, for its messages
};

/// Causal attention: q [b, n, s, d], k and v [b, g, s, d] of this rank's tokens, `mask` bool [b or 1, 1, k s,
/// k s] over whole sequences (true = hidden) or undefined -> [s, b, n * d].
///
/// A rank's queries meet keys in blocks of three shapes: its own (causal), those of all chunks before its
/// first (every query, no mask) and those between its two (the second chunk of queries, no mask); each is as
/// much work on every rank. Blocks are joined by their sums of exp(scores), in fp32.
///
/// Communication, with B bytes of k and v: in a ring each rank sends B (k-1) forward, while it computes with
/// what came before; backward again, and their gradients in fp32 k times, the last time home. Gathering: an
/// all-gather of k B forward and again backward, and a reduce-scatter of their gradients in fp32.
/// Kept for backward: q, k, v, the output and one sum a query.
at::Tensor attention_in_blocks(const ops::Qkv& qkv, const at::Tensor& mask, const BlocksArgs& args);

}  // namespace colonnade::layers
