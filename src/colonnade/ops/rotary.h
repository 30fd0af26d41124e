// Rotary position embedding and the cut of the fused query-key-value projection.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "colonnade/config/model.h"

namespace colonnade::ops {

/// cos and sin of position * inv_freq[i], fp32 [length, d_rot/2], times YaRN's attention factor. The first
/// d_rot elements of a head rotate in pairs: (i, i + d_rot/2), or (2i, 2i + 1) when interleaved; the rest
/// pass through.
struct RotaryTable {
  at::Tensor cos;
  at::Tensor sin;
  bool interleaved = false;
};

/// inv_freq[i] = base^(-2i/d_rot), d_rot = int(kv_channels * rotary_percent) made even downwards;
/// positions are divided by the linear interpolation factor; llama3's scaling divides frequencies of
/// long wavelength by its factor and blends in between. YaRN (Peng et al. 2023), with factor f and old length
/// L, divides by f those that turn less than beta_slow times over L, keeps those that turn more than
/// beta_fast times, and blends between: the share kept falls linearly in i from i(beta_fast) to i(beta_slow),
/// with i(n) = d_rot ln(L / (2 pi n)) / (2 ln base), rounded outwards where the settings say so. Cosines and
/// sines are then times yarn_mscale(f, mscale) / yarn_mscale(f, mscale_all_dim). A factor of 1 gives the
/// bits of plain rotary embedding. model.rotary_embedding() says which of both it is. Multi-latent attention
/// has d_rot = qk_pos_emb_head_dim (times rotary_percent with plain rotary embedding), pairs of neighbours,
/// and neither linear interpolation nor llama3's scaling. Source: Megatron's
/// core/models/common/embeddings/yarn_rotary_pos_embedding.py.
RotaryTable rotary_table(const config::Model& model, std::int64_t length, at::Device device);

/// 1 + 0.1 weight ln(factor); 1 for a factor of at most 1. Multi-latent attention (DeepSeek-V2) multiplies
/// its scores by the square of that of mscale_all_dim, in Megatron with --rope-type rope too.
double yarn_mscale(double factor, double weight);

/// x [s, b, n, d] with every head turned by its position: positions int64 [s, b], or undefined for
/// 0..s-1. Positions are on the table's device and lie in [0, table length); the latter is checked on the
/// CPU.
at::Tensor rotary(const at::Tensor& x_sbnd, const RotaryTable& table, const at::Tensor& positions = {});

/// Heads apart, as attention() reads them fastest: contiguous [b, heads, s, d].
struct Qkv {
  at::Tensor q;  ///< [b, n, s, d]
  at::Tensor k;  ///< [b, g, s, d]
  at::Tensor v;  ///< [b, g, s, d]
};

/// Cuts qkv [s, b, (heads + 2 groups) * head_dim], whose last dimension is [q | k | v], and turns q and
/// k by the table (null: no rotation) in the same pass. One backward writes one gradient tensor.
Qkv split_rotary(const at::Tensor& qkv_sbx, std::int64_t heads, std::int64_t groups, std::int64_t head_dim,
                 const RotaryTable* table, const at::Tensor& positions = {});

}  // namespace colonnade::ops
