// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace colonnade::data {

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
  [[nodiscard]] virtual std::int64_t vocab_size() const = 0;
  [[nodiscard]] virtual SpecialIds special() const = 0;
  /// The id of a piece of the vocabulary; -1: it has no such piece.
  [[nodiscard]] virtual std::int32_t id_of(std::string_view /*piece*/) const { return -1; }
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
};

struct TokenizerOptions {
  std::string type;             ///< --tokenizer-type
  std::string model;            ///< --tokenizer-model
  std::int64_t vocab_size = 0;  ///< --vocab-size; NullTokenizer and Megatron's tiktoken files only
  std::string vocab_file = {};  ///< --vocab-file; GPT2BPETokenizer, BertWordPieceLowerCase, BertWordPieceCase
  std::string merge_file = {};  ///< --merge-file; GPT2BPETokenizer
  bool special_in_documents = true;          ///< off by --tokenizer-hf-no-include-special-tokens
  std::string tiktoken_pattern = {};         ///< --tiktoken-pattern
  std::int64_t tiktoken_num_special = 1000;  ///< --tiktoken-num-special-tokens
};

/// Names of --tokenizer-type, with Megatron's meaning. The end of document is the eos, or else the sep.
///   NullTokenizer            text is integers below --vocab-size separated by spaces; the end of document is
///   the last id SentencePieceTokenizer, GPTSentencePieceTokenizer, Llama2Tokenizer    a SentencePiece .model
///   file HuggingFaceTokenizer     a tokenizer.json, or a folder with one GPT2BPETokenizer         vocab.json
///   and merges.txt, by flags or in the folder --tokenizer-model BertWordPieceLowerCase, BertWordPieceCase
///   vocab.txt, by --vocab-file or --tokenizer-model TikTokenizer             ranks of tiktoken
/// Throws ConfigError for another type or a missing setting, DataError for a bad file.
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerOptions& options);

/// The file that decides the ids of a tokenizer at `model`: a file itself, or the one in a folder. Throws
/// DataError when the folder holds none.
std::string tokenizer_file(const std::string& model);

struct SentencePieceTraining {
  std::string model_type = "bpe";  ///< bpe or unigram
  std::int64_t vocab_size = 0;
  bool byte_fallback = true;  ///< unknown characters become bytes, so that every text comes back
  double character_coverage = 0.9995;
};

/// Trains a SentencePiece model on `texts` and returns the bytes of its .model file. The same texts and
/// settings give the same bytes on every machine. Prints nothing. Throws DataError when the text is too
/// small for the vocabulary.
std::string train_sentencepiece(const std::vector<std::string>& texts, const SentencePieceTraining& training);

}  // namespace colonnade::data
