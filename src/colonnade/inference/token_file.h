// The files of `evaluate --tokens FILE --logits-out FILE`.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>

namespace colonnade::inference {

constexpr std::int64_t kIgnoredLabel = -100;

/// Rows of tokens and what is to be predicted, int64 [batch, sequence] on the CPU.
struct TokenRows {
  at::Tensor tokens;
  /// labels[b, t] is the token that follows tokens[b, t], or kIgnoredLabel: already shifted.
  at::Tensor labels;
  /// What an encoder reads, and bool, true where there is no token; undefined without one.
  at::Tensor encoder_tokens = {}, encoder_padding = {};
  /// Of a model that sees both ways: bool, true where there is no token, and kinds of tokens; else undefined.
  at::Tensor padding = {}, token_types = {};
};

/// Reads `input_ids` and, where there is one, `labels` of a safetensors file; both int32 or int64
/// [batch, sequence]. Labels follow Hugging Face: label t is the token at place t and is predicted from
/// those before it, so label 0 counts for nothing; -100 is ignored. Without labels they are the tokens.
/// Throws DataError for a missing or damaged file, a missing tensor, another type or shape, an id outside
/// of [0, vocab_size), and rows longer than `longest`.
TokenRows read_token_file(const std::filesystem::path& path, std::int64_t vocab_size, std::int64_t longest);

/// Of a model with an encoder: `input_ids` and, where there is one, `attention_mask` [batch, length] (0: no
/// token) are the encoder's; `labels` [batch, sequence] are what the decoder is to write. As in Hugging
/// Face's T5 the decoder reads them one place later, behind id 0 and with 0 for -100. Throws as
/// read_token_file.
TokenRows read_encoder_token_file(const std::filesystem::path& path, std::int64_t vocab_size,
                                  std::int64_t longest);

/// Of a model that sees both ways, with `kinds` kinds of tokens: `input_ids`, and where they are there
/// `attention_mask` (0: no token), `token_type_ids` (else 0; not read without kinds) and `labels`, all
/// [batch, sequence]. As in Hugging Face's BERT label t is the token at place t, -100 is ignored, and without
/// labels they are the tokens. Throws as read_token_file.
TokenRows read_masked_token_file(const std::filesystem::path& path, std::int64_t vocab_size,
                                 std::int64_t longest, std::int64_t kinds);

}  // namespace colonnade::inference
