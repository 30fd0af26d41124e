// What the rules that turn heads by their positions share. Private to ops.
#pragma once

#include "colonnade/ops/rotary.h"

namespace colonnade::ops {

/// y = x turned (or turned back), both [s, b, n, d] in any strides with adjacent elements. An empty table
/// copies without turning.
void turn(const at::Tensor& x, const at::Tensor& y, const RotaryTable& table, const at::Tensor& positions,
          bool inverse);

/// Positions as the kernels read them, after the checks that keep reads inside the table.
at::Tensor checked_positions(const RotaryTable& table, const at::Tensor& positions, std::int64_t s,
                             std::int64_t b, std::int64_t head_dim);

/// x with adjacent elements of its last dimension.
inline at::Tensor adjacent(const at::Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); }
/// [b, n, s, d] seen as [s, b, n, d].
inline at::Tensor seen_sbnd(const at::Tensor& x_bnsd) { return x_bnsd.permute({2, 0, 1, 3}); }

}  // namespace colonnade::ops
