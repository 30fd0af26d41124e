// Floating-point operations of one training step, counted as Megatron counts them, so that TFLOP/s
// can be compared.
// Source: Megatron's training/training.py (num_floating_point_operations).
#pragma once

#include "colonnade/config/run.h"

namespace colonnade::cost {

/// Vocabulary rows in memory: vocab_size filled up to a multiple of the divisor times `tensor` ranks.
std::int64_t padded_vocab_size(const config::Model& model, int tensor);

/// Tokens of one sample.
struct SampleLength {
  SampleLength(std::int64_t tokens, std::int64_t encoder = 0)  // NOLINT: a number of tokens will do
      : tokens(tokens), encoder(encoder) {}
  std::int64_t tokens;   ///< of the decoder, where there is an encoder
  std::int64_t encoder;  ///< that it reads
  [[nodiscard]] std::int64_t all() const { return tokens + encoder; }
  [[nodiscard]] std::int64_t of_layer(const config::Model& model, std::int64_t layer) const {
    return layer < model.encoder_num_layers ? encoder : tokens;
  }
};
SampleLength sample_length(const config::Run& run);

/// Operations of `sequences` samples of seq_length tokens, forward and backward (backward counts
/// twice), a multiply-add as two, with T tokens, Q = sequences * seq_length^2, q = heads * d,
/// kv = groups * d, f = 3 when gated and 2 otherwise, V with filling.
///
/// Multi-latent attention, with n heads of d channels of queries (r of them turned) and v of values, vectors
/// of widths a (queries) and c: in place of h (q + 2 kv) + q h
///     a (h + n d) + c (h + n (d - r + v)) + h r + n v h        (h n d for a (h + n d) where a is 0)
/// and 3 n (d + v) for 6 q. D further predicted tokens count as D more layers of the last one's kind, with
/// 12 h^2 and 6 h V each.
///
/// With an encoder of t tokens beside a decoder of s its layers see all scores, Q = 2 sequences t^2, and each
/// of the decoder's attends to it too: 6 h q 2 (s + t) in linears, 12 q s t in attention.
struct TrainingFlops {
  double linears = 0;    ///< T (L (6 h ffn f + 6 (h (q + 2 kv) + q h)) + 6 h V)
  double attention = 0;  ///< Q L 6 q: half of all scores (causal); of a layer with a window of W keys those
                         ///< inside it, T (2 W - W^2 / seq_length) 6 q, which Megatron counts as full
  double norms = 0;      ///< those that Megatron counts: T (L 6 (a + c) + 18 h D)
  [[nodiscard]] double total() const { return linears + attention + norms; }
};
/// Recomputation, other norms and activations are not counted. The ranks' matrix products add up to `linears`
/// (unless tensor ranks share key-value heads or, without sequence parallelism, products with whole weights:
/// what several of them compute counts once); a test holds them to it.
TrainingFlops training_flops_by_part(const config::Model& model, const SampleLength& length,
                                     std::int64_t sequences, int tensor);

/// Of the forward pass of one sample through one layer, on all ranks together.
struct LayerFlops {
  double projections = 0;  ///< of attention
  double heads = 0;        ///< of these, those that make the heads of multi-latent attention
  double mlp = 0;          ///< dense, or all experts that a token has
  double shared = 0;       ///< of these, shared experts
  double attention = 0;    ///< queries with keys and shares with values, for those keys that are seen
};
LayerFlops layer_flops(const config::Model& model, std::int64_t layer, const SampleLength& length);

/// The total of it, as Megatron counts it.
double training_flops(const config::Model& model, const SampleLength& length, std::int64_t sequences,
                      int tensor);

}  // namespace colonnade::cost
