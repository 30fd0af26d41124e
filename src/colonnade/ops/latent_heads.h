// Queries, keys and values of multi-latent attention out of what its up projections give.
#pragma once

#include "colonnade/ops/rotary.h"

namespace colonnade::ops {

/// Channels of a head: of queries and keys without and with position, and of values.
struct LatentHead {
  std::int64_t plain = 0, turned = 0, value = 0;
};

/// q [s, b, n (plain + turned)] with heads [plain | turned], kv [s, b, n (plain + value)] with heads
/// [plain | value], key [s, b, turned], the turning channels of all heads' keys
///   -> q and k [b, n, s, plain + turned], v [b, n, s, value], contiguous,
/// the turning channels turned by the table in neighbouring pairs or halves, as it says, those past its width
/// copied. One pass; backward keeps positions only and sums the gradient of `key` over the heads. No
/// communication.
Qkv latent_heads(const at::Tensor& q_sbx, const at::Tensor& kv_sbx, const at::Tensor& key_sbr,
                 std::int64_t heads, const LatentHead& head, const RotaryTable& table,
                 const at::Tensor& positions = {});

}  // namespace colonnade::ops
