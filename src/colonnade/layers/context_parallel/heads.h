// Heads for positions: context ranks exchange parts, so that each has all heads of some tokens before and
// after, and all tokens of some heads for attention itself. Any mask of the sequence then works as unsplit.
// Source: Jacobs et al. 2023 (DeepSpeed Ulysses); Megatron's --cp-comm-type a2a.
#pragma once

#include <string>

#include "colonnade/comm/group.h"
#include "colonnade/ops/rotary.h"

namespace colonnade::layers {

/// q [b, n, s, d], k and v [b, g, s, d] of this rank's tokens -> [b, n / k, k s, d] and [b, max(1, g / k), k
/// s, d] in the order of the sequence, for a group of k ranks; with fewer key-value heads than ranks
/// neighbours hold the same one. k divides n, and k and g one another. Communication: one all-to-all, one
/// more backward. Memory: as much as two of them; `part` goes once it is packed.
ops::Qkv heads_for_positions(ops::Qkv part, const comm::Group& group, const std::string& name);

/// y [k s, b, n / k * d] -> [s, b, n * d] of this rank's tokens. Communication: as above.
at::Tensor positions_for_heads(const at::Tensor& y_sbh, const comm::Group& group, const std::string& name);

}  // namespace colonnade::layers
