// Dropout whose mask is a function of names and numbers, so that every layout drops the same elements.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "colonnade/tensor/parameter.h"

namespace colonnade::ops {

/// Where the local block of an activation stands in the whole. Element (s, b, h) is dropped when
///   uniform(Philox{key}(counter = (begin + sequence_offset + s) * ceil(hidden_size / 4) + H / 4,
///                       stream = samples[b])[H % 4]) < p,   H = hidden_offset + h.
struct DropoutKey {
  std::uint64_t key = 0;             ///< from the seed and the name of the layer
  at::Tensor samples;                ///< int64 [b], global sample numbers, on the device of x
  std::int64_t begin = 0;            ///< place in the sample from which on positions are counted
  std::int64_t sequence_offset = 0;  ///< global position of the first local row
  std::int64_t jump_row = 0;         ///< > 0: the local row from which on positions go on at jump_to
  std::int64_t jump_to = 0;          ///< (activations only: a context rank holds two chunks)
  std::int64_t sequence_length = 0;  ///< of the whole sample (attention only)
  std::int64_t hidden_offset = 0;    ///< first local column; in attention the first local head
  std::int64_t hidden_size = 0;      ///< columns in all; in attention all heads
};

/// x [s, b, h] -> dropped elements 0, the others divided by 1 - p. p == 0 returns x.
at::Tensor dropout(const at::Tensor& x_sbh, double p, const DropoutKey& key);

/// x [s, b, h] -> x * (1 + eps (2 u - 1)) with u of the word that dropout would look at: uniform noise within
/// eps of 1. eps == 0 returns x.
at::Tensor jitter(const at::Tensor& x_sbh, double eps, const DropoutKey& key);

/// Standard normal numbers in the shape and type of x [s, b, h], fp32 or float64, by Box and Muller:
/// sqrt(-2 ln(1 - u)) cos(2 pi v) with u and v of 24 bits, u of the word that dropout would look at and v of
/// that word under `angle_key`. At most 5.77. The values of x are not read, and there is no gradient.
at::Tensor normal_like(const at::Tensor& x_sbh, const DropoutKey& key, std::uint64_t angle_key);

/// residual + dropout(x + bias) in one pass; `bias` [h] may be null. With p == 0 the key is not read.
/// The gradient of the bias goes to bias->accumulate().
at::Tensor bias_dropout_add(const at::Tensor& x_sbh, tensor::Parameter* bias, const at::Tensor& residual,
                            double p, const DropoutKey& key);

/// Attention probabilities x [b, n, q, k]. Element (b, n, q, k) is dropped by word K % 4 of
/// Philox{key}(counter = (N * S + Q) * ceil(S / 4) + K / 4, stream = samples[b]), N = hidden_offset + n,
/// Q = begin + sequence_offset + q, K = begin + k, S = sequence_length.
at::Tensor attention_dropout(const at::Tensor& x_bnqk, double p, const DropoutKey& key);
/// The same of the keys from `first_key` on, in place and not differentiable; x is contiguous.
void drop_attention_weights(const at::Tensor& x_bnqk, double p, const DropoutKey& key,
                            std::int64_t first_key);

}  // namespace colonnade::ops
