// FLOPs of one training step, counted as in Megatron so that TFLOP/s are comparable.
// Source: Megatron's training/training.py (num_floating_point_operations).
#pragma once

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/cost/blocks/compute.h"

namespace colonnade::cost {

class ModelCost;

/// Vocabulary rows in memory: vocab_size padded to a multiple of make_vocab_size_divisible_by * `tensor`.
std::int64_t padded_vocab_size(const config::Model& model, int tensor);

/// Tokens of one sample.
struct SampleLength {
  SampleLength(std::int64_t tokens) : sequences{tokens} {}  // NOLINT: implicit from a token count
  explicit SampleLength(std::vector<std::int64_t> sequences) : sequences(std::move(sequences)) {}
  std::vector<std::int64_t> sequences;  ///< tokens by sequence (config::stacks)
  [[nodiscard]] std::int64_t all() const { return std::accumulate(sequences.begin(), sequences.end(), 0LL); }
};
SampleLength sample_length(const config::Run& run);

/// FLOPs of `sequences` samples of seq_length tokens, forward and backward (backward counts twice), a
/// multiply-add as two: three times the forward FLOPs of all blocks, whose headers in cost/blocks have the
/// formulas. With T tokens, Q = sequences * seq_length^2, q = heads * d, kv = groups * d, f = 3 if gated and
/// 2 otherwise, V padded vocabulary, a model of L layers with attention and MLP has:
struct TrainingFlops {
  double linears = 0;    ///< T (L (6 h ffn f + 6 (h (q + 2 kv) + q h)) + 6 h V)
  double attention = 0;  ///< Q L 6 q: half of all scores (causal); in a layer with a window of W keys only
                         ///< those inside it, T (2 W - W^2 / seq_length) 6 q, where Megatron counts all
  double norms = 0;      ///< norms that Megatron counts, of some blocks
  [[nodiscard]] double total() const { return linears + attention + norms; }
};
/// Recomputation, other norms and activations are not counted. The matmuls of all ranks add up to `linears`,
/// unless tensor ranks share key-value heads or, without sequence parallelism, replicated weights: such
/// duplicates count once. A test compares the two.
TrainingFlops training_flops_by_part(const ModelCost& model, std::int64_t sequences);
/// The same from the forward FLOPs of all blocks for one sample.
TrainingFlops training_flops_by_part(const ForwardFlops& sum, std::int64_t sequences);
ForwardFlops forward_flops(const ModelCost& model);
/// The same of a model without a layout; `tensor` pads the vocabulary.
TrainingFlops training_flops_by_part(const config::Model& model, const SampleLength& length,
                                     std::int64_t sequences, int tensor);

/// The total, as in Megatron.
double training_flops(const config::Model& model, const SampleLength& length, std::int64_t sequences,
                      int tensor);

}  // namespace colonnade::cost
