// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/tokenizers/training_texts.h"

namespace colonnade::tokenizers {

/// Ids with a meaning of their own; -1: the tokenizer has none.
struct SpecialIds {
  std::int32_t bos = -1, eos = -1, unk = -1, pad = -1;
};

/// A vocabulary of ids 0 to vocab_size() - 1. Const functions are safe to call from many threads.
class Tokenizer {
 public:
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  virtual ~Tokenizer() = default;

  /// Ids of UTF-8 text, without special ids. Throws DataError for text the tokenizer does not take.
  [[nodiscard]] virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// Text of ids; special ids give none. Throws DataError for an id outside of the vocabulary.
  [[nodiscard]] virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  /// The same with the text of special ids, as far as they have one.
  [[nodiscard]] virtual std::string decode_all(std::span<const std::int32_t> ids) const {
    return decode(ids);
  }
  /// decode() as the text was encoded, where that changes white space of texts that people read
  /// (clean_up_tokenization_spaces of a Hugging Face folder).
  [[nodiscard]] virtual std::string decode_exactly(std::span<const std::int32_t> ids) const {
    return decode(ids);
  }
  /// What an id stands for in a text that encode() gave it for, as far as that is known: of byte-level
  /// tokenizers its raw bytes, which may be a part of a character; white space in front may have been put
  /// there by the tokenizer.
  [[nodiscard]] virtual std::string bytes_of(std::int32_t id) const { return decode_all({&id, 1}); }
  [[nodiscard]] virtual std::int64_t vocab_size() const = 0;
  /// vocab_size() without the added tokens that lie behind the vocabulary itself (tokenizer.json).
  [[nodiscard]] virtual std::int64_t base_vocab_size() const { return vocab_size(); }
  [[nodiscard]] virtual SpecialIds special() const = 0;
  /// The id of a piece of the vocabulary; -1: it has no such piece.
  [[nodiscard]] virtual std::int32_t id_of(std::string_view /*piece*/) const { return -1; }
  /// The piece of an id, the reverse of id_of(); empty: there is none.
  [[nodiscard]] virtual std::string piece_of(std::int32_t /*id*/) const { return {}; }
  /// What ends a document (--append-eod); -1: none.
  [[nodiscard]] virtual std::int32_t eod() const = 0;

  /// Ids with the special ones that the tokenizer puts around a text: encode() between bos and eos, as far as
  /// it has them, unless its file says otherwise.
  [[nodiscard]] virtual std::vector<std::int32_t> encode_with_special(std::string_view text) const;
  /// Ids as `preprocess` writes them: encode(), or with special ids where Megatron's tokenizer of this type
  /// adds them.
  [[nodiscard]] virtual std::vector<std::int32_t> encode_document(std::string_view text) const {
    return encode(text);
  }
  /// Ids of a text with those that begin it in Transformers: encode_document(), unless the files of the
  /// tokenizer name a begin that Megatron's does not have.
  [[nodiscard]] virtual std::vector<std::int32_t> encode_with_begin(std::string_view text) const {
    return encode_document(text);
  }
};

/// Ids of a text to be continued: encode() behind the special ids that begin it (encode_with_begin()). They
/// are left out where the text holds them itself, as a rendered chat does; ids that would end a document are
/// not added. Empty for an empty text.
std::vector<std::int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view text);

struct TokenizerOptions {
  std::string type;                          ///< --tokenizer-type
  std::string model;                         ///< --tokenizer-model
  std::int64_t vocab_size = 0;               ///< --vocab-size
  std::string vocab_file = {};               ///< --vocab-file
  std::string merge_file = {};               ///< --merge-file
  bool special_in_documents = true;          ///< off by --tokenizer-hf-no-include-special-tokens
  std::string tiktoken_pattern = {};         ///< --tiktoken-pattern
  std::int64_t tiktoken_num_special = 1000;  ///< --tiktoken-num-special-tokens
};

/// The names of --tokenizer-type, with Megatron's meaning, and what each is made from besides `model`:
/// - NullTokenizer: integers below `vocab_size` with spaces between them; the last one ends a document.
///   `model` is not read.
/// - SentencePieceTokenizer, GPTSentencePieceTokenizer, Llama2Tokenizer: a SentencePiece .model file, or a
/// folder with tokenizer.model, whose tokenizer_config.json says how prompts begin.
/// - HuggingFaceTokenizer, and SFTTokenizer, Megatron's name for it with --sft: a tokenizer.json, or a folder
/// with one; `special_in_documents`.
/// - GPT2BPETokenizer: `vocab_file` and `merge_file`, or a folder with vocab.json and merges.txt.
/// - BertWordPieceLowerCase, BertWordPieceCase: `vocab_file`, a vocab.txt or a folder with one.
/// - TikTokenizer: ranks of tiktoken; `tiktoken_pattern`; for Megatron's files `tiktoken_num_special` and
///   `vocab_size`.
///
/// A document ends with the eos, or else the sep. Throws ConfigError for another type, a missing option and
/// one that the type does not take, DataError for a bad file.
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerOptions& options);

/// Whether the type takes --vocab-size; the others know the size of their vocabulary.
bool takes_vocab_size(std::string_view type);

/// The file that decides the ids of a tokenizer at `model`: a file itself, or the one in a folder. Throws
/// DataError when the folder holds none.
std::string tokenizer_file(const std::string& model);

struct SentencePieceTraining {
  std::string model_type = "bpe";  ///< bpe or unigram
  std::int64_t vocab_size = 0;
  bool byte_fallback = true;  ///< unknown characters become bytes, so that every text comes back
  double character_coverage = 0.9995;
  std::int64_t most_lines = 10'000'000;  ///< input_sentence_size; 0: no limit
};

struct TrainedSentencePiece {
  std::string model;          ///< the bytes of a .model file
  std::int64_t lines = 0;     ///< of all texts, without empty ones
  std::int64_t left_out = 0;  ///< of these, lines of more than 1,000,000 bytes, which are not used
};

/// Trains a SentencePiece model on the lines of all texts. The library holds the lines it trains on: all of
/// them, or of more than `most_lines` as many, drawn by a fixed seed. The same texts and settings give the
/// same bytes on every machine. Prints nothing. Throws DataError when the text is too small for the
/// vocabulary, ConfigError for a limit from 1 to 100.
TrainedSentencePiece train_sentencepiece(const NextText& next, const SentencePieceTraining& training);

}  // namespace colonnade::tokenizers
