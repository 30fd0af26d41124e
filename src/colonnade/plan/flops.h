// Floating-point operations of one training step, counted as Megatron counts them, so that TFLOP/s
// can be compared.
// Source: Megatron's training/training.py (num_floating_point_operations).
#pragma once

#include "colonnade/config/model.h"

namespace colonnade::plan {

/// Vocabulary rows in memory: vocab_size filled up to a multiple of the divisor times `tensor` ranks.
std::int64_t padded_vocab_size(const config::Model& model, int tensor);

/// Operations of `sequences` sequences of `seq_length` tokens, forward and backward (backward counts
/// twice), a multiply-add as two, with T tokens, Q = sequences * seq_length^2, q = heads * d,
/// kv = groups * d, f = 3 when gated and 2 otherwise, V with filling.
struct TrainingFlops {
  double linears = 0;    ///< T (L (6 h ffn f + 6 (h (q + 2 kv) + q h)) + 6 h V)
  double attention = 0;  ///< Q L 6 q: half of all scores (causal), a sliding window counted as full
  [[nodiscard]] double total() const { return linears + attention; }
};
/// Recomputation, norms and activations are not counted. The ranks' matrix products add up to `linears`
/// (unless tensor ranks share key-value heads: what several of them compute counts once); a test holds
/// them to it.
TrainingFlops training_flops_by_part(const config::Model& model, std::int64_t seq_length,
                                     std::int64_t sequences, int tensor);

/// The total of it, as Megatron counts it.
double training_flops(const config::Model& model, std::int64_t seq_length, std::int64_t sequences,
                      int tensor);

}  // namespace colonnade::plan
