// Input files of `evaluate --tokens FILE`.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>

#include "colonnade/config/model.h"
#include "colonnade/tensor/batch.h"

namespace colonnade::inference {

constexpr std::int64_t kIgnoreIndex = -100;

/// Token rows and their labels, int64 [batch, sequence] on the CPU.
struct TokenRows {
  at::Tensor tokens;
  /// labels[b, t] is the token that follows tokens[b, t], or kIgnoreIndex: already shifted.
  at::Tensor labels;
  /// Encoder input and its padding mask (bool, true: padding); undefined without an encoder.
  at::Tensor encoder_tokens = {}, encoder_padding = {};
  /// Bidirectional models: padding mask (bool, true: padding) and token types; else undefined.
  at::Tensor padding = {}, token_types = {};

  /// Batch of rows [first, first + count): all tensors except the labels.
  [[nodiscard]] tensor::Batch inputs(std::int64_t first, std::int64_t count) const;
};

/// Reads `input_ids` and optional `labels` of a safetensors file, both int32 or int64 [batch, sequence].
/// Labels follow Hugging Face: label t is the token at position t, predicted from the tokens before it, so
/// label 0 is unused; -100 is ignored. Labels default to the tokens. Throws DataError for a missing or
/// damaged file, a missing tensor, a wrong dtype or shape, an id outside [0, vocab_size), and rows longer
/// than `longest`.
TokenRows read_token_file(const std::filesystem::path& path, std::int64_t vocab_size, std::int64_t longest);

/// Encoder-decoder models: `input_ids` and optional `attention_mask` [batch, length] (0: padding) are the
/// encoder's, `labels` [batch, sequence] the decoder's targets. As in Hugging Face's T5, decoder inputs are
/// the labels shifted right after id 0, with 0 for -100. Throws as read_token_file.
TokenRows read_encoder_token_file(const std::filesystem::path& path, std::int64_t vocab_size,
                                  std::int64_t longest);

/// Bidirectional models with `num_token_types` token types: `input_ids` and optional `attention_mask` (0:
/// padding), `token_type_ids` (default 0; not read without token types) and `labels`, all [batch, sequence].
/// As in Hugging Face's BERT label t is the token at position t, -100 is ignored, and labels default to the
/// tokens. Throws as read_token_file.
TokenRows read_masked_token_file(const std::filesystem::path& path, std::int64_t vocab_size,
                                 std::int64_t longest, std::int64_t num_token_types);

/// The one of these readers for the model's architecture.
TokenRows read_token_file(const std::filesystem::path& path, const config::Model& model,
                          std::int64_t longest);

}  // namespace colonnade::inference
