// Ulysses context parallelism: an all-to-all turns sequence shards with all heads into head shards of the
// full sequence for attention, and a second one turns them back. Any attention mask works as without
// sharding. Source: Jacobs et al. 2023 (DeepSpeed Ulysses); Megatron's --cp-comm-type a2a.
#pragma once

#include <string>

#include "colonnade/comm/group.h"
#include "colonnade/ops/rotary.h"

namespace colonnade::layers {

/// q [b, n, s, d], k and v [b, g, s, d] of this rank's tokens -> [b, n / k, k s, d] and [b, max(1, g / k), k
/// s, d] in sequence order, for a group of k ranks; with fewer key-value heads than ranks, neighbouring ranks
/// hold the same one. k divides n, and k divides g or g divides k. Communication: one all-to-all each way.
/// Memory: two copies at a time; `part` is released once packed.
ops::Qkv sequence_to_head_shards(ops::Qkv part, const comm::Group& group, const std::string& name);

/// y [k s, b, n / k * d] -> [s, b, n * d] of this rank's tokens. Communication: one all-to-all each way.
at::Tensor head_to_sequence_shards(const at::Tensor& y_sbh, const comm::Group& group,
                                   const std::string& name);

}  // namespace colonnade::layers
