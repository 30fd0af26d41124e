// Stacks of a model: runs of layers that each process one token sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/config/training.h"

namespace colonnade::config {

/// Layers [first, last) by global number.
struct Stack {
  const char* name;  ///< as in parameter names
  std::int64_t first, last;
};

/// One stack (GPT, BERT), or encoder and decoder, in the order of their layers. Each has its own sequence:
/// sequences have the numbers of stacks. The head reads the last one.
inline std::vector<Stack> stacks(const Model& m) {
  if (m.encoder_num_layers == 0) return {{m.bidirectional ? "encoder" : "decoder", 0, m.num_layers}};
  return {{"encoder", 0, m.encoder_num_layers}, {"decoder", m.encoder_num_layers, m.total_layers()}};
}

inline bool has_several_stacks(const Model& m) { return m.encoder_num_layers > 0; }

/// `layer`: global number.
inline bool is_in_last_stack(const Model& m, std::int64_t layer) { return layer >= m.encoder_num_layers; }

/// Number of the stack of `layer`.
inline std::size_t stack_of_layer(const Model& m, std::int64_t layer) {
  return has_several_stacks(m) && is_in_last_stack(m, layer) ? 1 : 0;
}

/// Tokens of a sample, by sequence.
inline std::vector<std::int64_t> sequence_lengths(const Model& m, const Training& t) {
  if (!has_several_stacks(m)) return {t.seq_length};
  return {t.seq_length, t.decoder_seq_length};
}

/// Encoder and decoder of a T5 have equally many layers unless both are given.
inline void derive_stacks(Model& m) {
  if (m.num_layers == 0) m.num_layers = m.encoder_num_layers;
  if (m.encoder_num_layers == 0) m.encoder_num_layers = m.num_layers;
}

}  // namespace colonnade::config
