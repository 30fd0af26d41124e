// Shared by the rotary autograd functions. Internal to ops.
#pragma once

#include "colonnade/ops/rotary.h"

namespace colonnade::ops {

/// y = x rotated by position (or rotated back), both [s, b, n, d] with inner stride 1. An empty table copies.
void apply_rotary(const at::Tensor& x, const at::Tensor& y, const RotaryTable& table,
                  const at::Tensor& positions, bool inverse);

/// Validates positions against the table; returns them contiguous for the kernels.
at::Tensor checked_positions(const RotaryTable& table, const at::Tensor& positions, std::int64_t s,
                             std::int64_t b, std::int64_t head_dim);

/// x with stride 1 in the last dimension.
inline at::Tensor with_unit_stride(const at::Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); }
/// View of [b, n, s, d] as [s, b, n, d].
inline at::Tensor as_sbnd(const at::Tensor& x_bnsd) { return x_bnsd.permute({2, 0, 1, 3}); }

}  // namespace colonnade::ops
