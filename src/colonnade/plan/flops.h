// Floating-point operations of one training step, counted as Megatron counts them, so that TFLOP/s
// can be compared.
// Source: Megatron's training/training.py (num_floating_point_operations).
#pragma once

#include "colonnade/config/model.h"

namespace colonnade::plan {

/// Vocabulary rows in memory: vocab_size filled up to a multiple of the divisor times `tensor` ranks.
std::int64_t padded_vocab_size(const config::Model& model, int tensor);

/// Operations of `sequences` sequences of `seq_length` tokens, forward and backward (backward counts
/// twice), a multiply-add as two:
///   T (6 h ffn f L + L 6 (h (q + 2 kv) + q h) + 6 h V) + Q 6 q L
/// with T tokens, Q = sequences * seq_length^2 (half of all scores: causal), q = heads * d,
/// kv = groups * d, f = 3 when gated and 2 otherwise, V with filling. Recomputation, norms and
/// activations are not counted; a sliding window counts as full attention.
double training_flops(const config::Model& model, std::int64_t seq_length, std::int64_t sequences,
                      int tensor);

}  // namespace colonnade::plan
