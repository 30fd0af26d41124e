// FLOPs of one training step, counted as in Megatron so that TFLOP/s are comparable.
// Source: Megatron's training/training.py (num_floating_point_operations).
#pragma once

#include "colonnade/config/run.h"

namespace colonnade::cost {

/// Vocabulary rows in memory: vocab_size padded to a multiple of make_vocab_size_divisible_by * `tensor`.
std::int64_t padded_vocab_size(const config::Model& model, int tensor);

/// Tokens of one sample.
struct SampleLength {
  SampleLength(std::int64_t tokens, std::int64_t encoder = 0)  // NOLINT: implicit from a token count
      : tokens(tokens), encoder(encoder) {}
  std::int64_t tokens;   ///< tokens; with an encoder, those of the decoder
  std::int64_t encoder;  ///< tokens of the encoder; 0 without one
  [[nodiscard]] std::int64_t all() const { return tokens + encoder; }
  [[nodiscard]] std::int64_t of_layer(const config::Model& model, std::int64_t layer) const {
    return layer < model.encoder_num_layers ? encoder : tokens;
  }
};
SampleLength sample_length(const config::Run& run);

/// FLOPs of `sequences` samples of seq_length tokens, forward and backward (backward counts twice), a
/// multiply-add as two, with T tokens, Q = sequences * seq_length^2, q = heads * d, kv = groups * d, f = 3 if
/// gated and 2 otherwise, V padded vocabulary.
///
/// Multi-latent attention, with n heads of d query channels (r of them rotary) and v value channels, latents
/// of widths a (queries) and c (keys and values): in place of h (q + 2 kv) + q h
///     a (h + n d) + c (h + n (d - r + v)) + h r + n v h        (h n d for a (h + n d) where a is 0)
/// and 3 n (d + v) for 6 q. D MTP depths count as D more layers like the last one, with 12 h^2 and 6 h V
/// each.
///
/// With an encoder of t tokens and a decoder of s, encoder layers compute all scores, Q = 2 sequences t^2,
/// and each decoder layer adds cross-attention: 6 h q 2 (s + t) in linears, 12 q s t in attention.
struct TrainingFlops {
  double linears = 0;    ///< T (L (6 h ffn f + 6 (h (q + 2 kv) + q h)) + 6 h V)
  double attention = 0;  ///< Q L 6 q: half of all scores (causal); in a layer with a window of W keys only
                         ///< those inside it, T (2 W - W^2 / seq_length) 6 q, where Megatron counts all
  double norms = 0;      ///< norms that Megatron counts: T (L 6 (a + c) + 18 h D)
  [[nodiscard]] double total() const { return linears + attention + norms; }
};
/// Recomputation, other norms and activations are not counted. The matmuls of all ranks add up to `linears`,
/// unless tensor ranks share key-value heads or, without sequence parallelism, replicated weights: such
/// duplicates count once. A test compares the two.
TrainingFlops training_flops_by_part(const config::Model& model, const SampleLength& length,
                                     std::int64_t sequences, int tensor);

/// FLOPs of one sample's forward pass through one layer, summed over all ranks.
struct LayerFlops {
  double projections = 0;     ///< linear layers of attention
  double up_projections = 0;  ///< part of `projections`: up-projections of MLA
  double mlp = 0;             ///< dense MLP, or the routed and shared experts of each token
  double shared = 0;          ///< part of `mlp`: shared experts
  double attention = 0;       ///< QK^T and PV, for unmasked keys
};
LayerFlops layer_flops(const config::Model& model, std::int64_t layer, const SampleLength& length);

/// The total, as in Megatron.
double training_flops(const config::Model& model, const SampleLength& length, std::int64_t sequences,
                      int tensor);

}  // namespace colonnade::cost
