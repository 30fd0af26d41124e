// Counter-based dropout: the mask is a function of layer name, sample and position, equal in every layout.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "colonnade/tensor/parameter.h"

namespace colonnade::ops {

/// Random key, and position of the local activation in the global one. Element (s, b, h) is dropped if
///   uniform(Philox{key}(counter = (begin + sequence_offset + s) * ceil(hidden_size / 4) + H / 4,
///                       stream = samples[b])[H % 4]) < p,   H = hidden_offset + h.
struct DropoutKey {
  std::uint64_t key = 0;             ///< hash of seed and layer name
  at::Tensor samples;                ///< int64 [b], global sample indices, on the device of x
  std::int64_t begin = 0;            ///< position in the sample at which the sequence begins
  std::int64_t sequence_offset = 0;  ///< global position of the first local row
  std::int64_t second_chunk_row =
      0;  ///< > 0: first local row of a second chunk, at position second_chunk_begin
  std::int64_t second_chunk_begin = 0;  ///< (activations only: a context-parallel rank holds two chunks)
  std::int64_t sequence_length = 0;     ///< length of the full sample (attention only)
  std::int64_t hidden_offset = 0;       ///< first local column; in attention the first local head
  std::int64_t hidden_size = 0;         ///< global number of columns; in attention, of heads
};

/// Dropout of x [s, b, h]: kept elements are divided by 1 - p. p == 0 returns x.
at::Tensor dropout(const at::Tensor& x_sbh, double p, const DropoutKey& key);

/// x [s, b, h] -> x * (1 + eps (2 u - 1)), multiplicative uniform noise; u comes from the random word that
/// dropout would use. eps == 0 returns x.
at::Tensor jitter(const at::Tensor& x_sbh, double eps, const DropoutKey& key);

/// Standard normal numbers with shape and dtype of x [s, b, h], fp32 or float64, by the Box-Muller transform:
/// sqrt(-2 ln(1 - u)) cos(2 pi v) with 24-bit u and v, u from the random word that dropout would use and v
/// from that word under `angle_key`. Magnitudes are at most 5.77. Values of x are not read; no gradient.
at::Tensor normal_like(const at::Tensor& x_sbh, const DropoutKey& key, std::uint64_t angle_key);

/// residual + dropout(x + bias) in one pass; `bias` [h] may be null. The key is unused if p == 0. `residual`
/// and the result have the dtype of x or, with 16 bits, fp32; sums are rounded once, to that. The bias
/// gradient goes to bias->accumulate().
at::Tensor bias_dropout_add(const at::Tensor& x_sbh, tensor::Parameter* bias, const at::Tensor& residual,
                            double p, const DropoutKey& key);

/// Dropout of attention probabilities x [b, n, q, k]. Element (b, n, q, k) uses word K % 4 of
/// Philox{key}(counter = (N * S + Q) * ceil(S / 4) + K / 4, stream = samples[b]), N = hidden_offset + n,
/// Q = begin + sequence_offset + q, K = begin + k, S = sequence_length.
at::Tensor attention_dropout(const at::Tensor& x_bnqk, double p, const DropoutKey& key);
/// The same for keys from `first_key` on, in place and not differentiable; x must be contiguous.
void drop_attention_weights(const at::Tensor& x_bnqk, double p, const DropoutKey& key,
                            std::int64_t first_key);

}  // namespace colonnade::ops
