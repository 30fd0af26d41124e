// The tokenizer interface: text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/tokenizers/training_texts.h"

namespace colonnade::tokenizers {

/// Ids of special tokens; -1 if the tokenizer has none.
struct SpecialIds {
  std::int32_t bos = -1, eos = -1, unk = -1, pad = -1;
};

/// A tokenizer with ids 0 to vocab_size() - 1. Const functions are thread-safe.
class Tokenizer {
 public:
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  virtual ~Tokenizer() = default;

  /// Ids of UTF-8 text, without special ids. Throws DataError for text that the tokenizer cannot encode.
  [[nodiscard]] virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// Text of ids, without special ones. Throws DataError for an id outside the vocabulary.
  [[nodiscard]] virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  /// decode() including the text of special ids, if they have one.
  [[nodiscard]] virtual std::string decode_with_special(std::span<const std::int32_t> ids) const {
    return decode(ids);
  }
  /// decode() without clean_up_tokenization_spaces of a Hugging Face folder, which removes spaces that were
  /// encoded.
  [[nodiscard]] virtual std::string decode_without_cleanup(std::span<const std::int32_t> ids) const {
    return decode(ids);
  }
  /// The bytes that an id of encode() represents in the text, as far as known: raw bytes for byte-level
  /// tokenizers, possibly of a partial character. The tokenizer may have added leading white space.
  [[nodiscard]] virtual std::string bytes_of(std::int32_t id) const { return decode_with_special({&id, 1}); }
  [[nodiscard]] virtual std::int64_t vocab_size() const = 0;
  /// vocab_size() without the added tokens after the model's vocabulary (tokenizer.json).
  [[nodiscard]] virtual std::int64_t base_vocab_size() const { return vocab_size(); }
  [[nodiscard]] virtual SpecialIds special() const = 0;
  /// The id of a piece; -1 if it is not in the vocabulary.
  [[nodiscard]] virtual std::int32_t id_of(std::string_view /*piece*/) const { return -1; }
  /// The piece of an id, the inverse of id_of(); empty if there is none.
  [[nodiscard]] virtual std::string piece_of(std::int32_t /*id*/) const { return {}; }
  /// The id that ends a document (--append-eod); -1 if there is none.
  [[nodiscard]] virtual std::int32_t eod() const = 0;

  /// Ids with the special tokens that the tokenizer adds to a text. By default encode() between bos and eos,
  /// if it has them.
  [[nodiscard]] virtual std::vector<std::int32_t> encode_with_special(std::string_view text) const;
  /// Ids as `preprocess` writes them: encode(), plus special ids if Megatron's tokenizer of this type adds
  /// them.
  [[nodiscard]] virtual std::vector<std::int32_t> encode_document(std::string_view text) const {
    return encode(text);
  }
  /// Ids with the bos that Transformers adds to a prompt: encode_document(), or with the bos of the
  /// tokenizer's files where Megatron adds none.
  [[nodiscard]] virtual std::vector<std::int32_t> encode_with_bos(std::string_view text) const {
    return encode_document(text);
  }
};

/// Ids of a prompt: the leading special ids of encode_with_bos(), then encode(). The leading ids are not
/// repeated if the text contains them, as a rendered chat does; trailing special ids are dropped. Empty for
/// an empty text.
std::vector<std::int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view text);

struct TokenizerOptions {
  std::string type;                          ///< --tokenizer-type
  std::string model;                         ///< --tokenizer-model
  std::int64_t vocab_size = 0;               ///< --vocab-size
  std::string vocab_file = {};               ///< --vocab-file
  std::string merge_file = {};               ///< --merge-file
  bool special_in_documents = true;          ///< false with --tokenizer-hf-no-include-special-tokens
  std::string tiktoken_pattern = {};         ///< --tiktoken-pattern
  std::int64_t tiktoken_num_special = 1000;  ///< --tiktoken-num-special-tokens
};

/// Makes the tokenizer of a --tokenizer-type, which have Megatron's names and meanings:
/// - NullTokenizer: space-separated integers below `vocab_size`; the last id ends a document. `model` is not
/// read.
/// - SentencePieceTokenizer, GPTSentencePieceTokenizer, Llama2Tokenizer: a SentencePiece .model file, or a
/// folder
///   with tokenizer.model, whose tokenizer_config.json sets the bos of prompts.
/// - HuggingFaceTokenizer, and SFTTokenizer, Megatron's name for it with --sft: a tokenizer.json, or a folder
/// with
///   one; `special_in_documents`.
/// - GPT2BPETokenizer: `vocab_file` and `merge_file`, or a folder with vocab.json and merges.txt.
/// - BertWordPieceLowerCase, BertWordPieceCase: `vocab_file`, a vocab.txt or a folder with one.
/// - TikTokenizer: tiktoken ranks; `tiktoken_pattern`; for Megatron's files `tiktoken_num_special` and
/// `vocab_size`.
///
/// The eos, or else the sep, ends a document. Throws ConfigError for an unknown type, a missing option or one
/// that the type does not accept, DataError for a bad file.
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerOptions& options);

/// Whether the type accepts --vocab-size; the others read the size from their files.
bool accepts_vocab_size(std::string_view type);

/// The file that determines the ids of the tokenizer at `model`: the file itself, or one in the folder.
/// Throws DataError if the folder has none.
std::string tokenizer_file(const std::string& model);

struct SentencePieceTraining {
  std::string model_type = "bpe";  ///< bpe or unigram
  std::int64_t vocab_size = 0;
  bool byte_fallback = true;  ///< unknown characters become bytes, so that decoding is lossless
  double character_coverage = 0.9995;
  std::int64_t max_lines = 10'000'000;  ///< input_sentence_size; 0 for no limit
};

struct TrainedSentencePiece {
  std::string model;               ///< the bytes of a .model file
  std::int64_t lines = 0;          ///< nonempty lines of all texts
  std::int64_t skipped_lines = 0;  ///< of these, unused lines of more than 1,000,000 bytes
};

/// Trains a SentencePiece model on the lines of all texts. The library holds its training lines in memory:
/// all lines, or `max_lines` of them sampled with a fixed seed. The same texts and settings give the same
/// bytes on every machine. Prints nothing. Throws DataError if the text is too small for the vocabulary,
/// ConfigError for a `max_lines` from 1 to 100.
TrainedSentencePiece train_sentencepiece(const NextText& next, const SentencePieceTraining& training);

}  // namespace colonnade::tokenizers
