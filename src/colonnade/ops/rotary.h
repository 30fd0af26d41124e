// Rotary position embedding, and splitting of the fused query-key-value projection.
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
  at::Tensor query_cos, query_sin;  ///< those of queries, if they differ (Model::query_scaling_beta)
  [[nodiscard]] RotaryTable of_queries() const {
    return query_cos.defined() ? RotaryTable{query_cos, query_sin, interleaved, {}, {}} : *this;
  }
};

/// inv_freq[i] = base^(-2i/d_rot), with d_rot = model.rotary_channels(). config::rotary_of gives the pairs
/// and whether the next two scalings apply. Positions are divided by the linear interpolation factor. Llama 3
/// scaling divides frequencies of long
/// wavelength by its factor and blends in between. YaRN (Peng et al. 2023), with factor f and original length
/// L, divides frequencies with fewer than beta_slow rotations over L by f, keeps those with more than
/// beta_fast rotations, and blends in between: the kept fraction falls linearly in i from i(beta_fast) to
/// i(beta_slow), with i(n) = d_rot ln(L / (2 pi n)) / (2 ln base), rounded outwards if so configured. Cosines
/// and sines are then multiplied by yarn_mscale(f, mscale) / yarn_mscale(f, mscale_all_dim). Factor 1 is
/// bitwise equal to plain RoPE. model.rotary_embedding() selects RoPE or YaRN. Source: Megatron's
/// core/models/common/embeddings/yarn_rotary_pos_embedding.py.
///
/// LongRoPE (Ding et al. 2024) divides frequency i by the i-th of its short factors, for a `sequence` beyond
/// the original length L by the i-th of its long ones. Cosines and sines are multiplied by the attention
/// factor, by default sqrt(1 + ln(M / L) / ln L) with the maximum length M, as in Transformers.
RotaryTable rotary_table(const config::Model& model, std::int64_t length, at::Device device,
                         std::int64_t sequence = 0);

/// 1 + 0.1 weight ln(factor); 1 for factor <= 1.
double yarn_mscale(double factor, double weight);

/// Rotates every head of x [s, b, n, d] by its position: positions int64 [s, b], or undefined for 0..s-1.
/// Positions must be on the table's device and in [0, table length); the range is checked on the CPU only.
at::Tensor rotary(const at::Tensor& x_sbnd, const RotaryTable& table, const at::Tensor& positions = {});

/// Attention inputs, contiguous [b, heads, s, d].
struct Qkv {
  at::Tensor q;  ///< [b, n, s, d]
  at::Tensor k;  ///< [b, g, s, d]
  at::Tensor v;  ///< [b, g, s, d]
};

/// Splits qkv [s, b, (heads + 2 groups) * head_dim], with last dimension [q | k | v], and rotates q and k by
/// the table (null: no rotation) in the same pass. Backward writes a single gradient tensor.
Qkv split_rotary(const at::Tensor& qkv_sbx, std::int64_t heads, std::int64_t groups, std::int64_t head_dim,
                 const RotaryTable* table, const at::Tensor& positions = {});

/// Attention inputs with the gate of the attention output [s, b, n * d], contiguous.
struct GatedQkv {
  Qkv heads;
  at::Tensor gate;
};

/// The same for qkv [s, b, (2 heads + 2 groups) * head_dim] with last dimension [q | gate | k | v]; the gate
/// is copied.
GatedQkv split_gated_rotary(const at::Tensor& qkv_sbx, std::int64_t heads, std::int64_t groups,
                            std::int64_t head_dim, const RotaryTable* table,
                            const at::Tensor& positions = {});

}  // namespace colonnade::ops
