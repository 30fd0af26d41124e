// Queries, keys and values of multi-latent attention from its up projections.
#pragma once

#include "colonnade/ops/rotary.h"

namespace colonnade::ops {

/// Head sizes: query-key channels without and with rotary embedding, and value channels.
struct LatentHead {
  std::int64_t nope = 0, rope = 0, value = 0;
};

/// q [s, b, n (nope + rope)] with heads [nope | rope], kv [s, b, n (nope + value)] with heads [nope |
/// value], and key [s, b, rope], the rotary channels shared by the keys of all heads
///   -> q and k [b, n, s, nope + rope], v [b, n, s, value], contiguous.
/// Rotary channels rotate by the table, interleaved or in halves; those beyond its width are copied. One
/// pass; saves only positions for backward, which sums the gradient of `key` over the heads. No
/// communication.
Qkv latent_heads(const at::Tensor& q_sbx, const at::Tensor& kv_sbx, const at::Tensor& key_sbr,
                 std::int64_t heads, const LatentHead& head, const RotaryTable& table,
                 const at::Tensor& positions = {});

}  // namespace colonnade::ops
