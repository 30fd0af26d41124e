// A tokenizer made of the parts of a Hugging Face tokenizer.json.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "colonnade/tokenizers/added_tokens.h"
#include "colonnade/tokenizers/byte_bpe.h"
#include "colonnade/tokenizers/decoder.h"
#include "colonnade/tokenizers/growth.h"
#include "colonnade/tokenizers/model.h"
#include "colonnade/tokenizers/normalizer.h"
#include "colonnade/tokenizers/pool.h"
#include "colonnade/tokenizers/post_processor.h"
#include "colonnade/tokenizers/pre_tokenizer.h"
#include "colonnade/tokenizers/tokenizer.h"
#include "colonnade/tokenizers/word_cache.h"

namespace colonnade::tokenizers {

struct TokenizerParts {
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  std::unique_ptr<Model> model;
  PostProcessor post_processor;
  std::vector<Decoder> decoders;
  std::vector<AddedToken> added;  ///< ids set
  bool cleans_texts = false;      ///< texts of ids go through without_word_spaces()
};

/// Encodes as Hugging Face tokenizers does. Byte-level models whose vocabulary has every byte run on raw
/// bytes.
class PartsTokenizer final : public Tokenizer {
 public:
  explicit PartsTokenizer(TokenizerParts parts);

  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const override;
  [[nodiscard]] std::vector<std::int32_t> encode_with_special(std::string_view text) const override;
  [[nodiscard]] std::vector<std::int32_t> encode_document(std::string_view text) const override;
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override {
    return cleaned(text_of(ids, false));
  }
  [[nodiscard]] std::string decode_all(std::span<const std::int32_t> ids) const override {
    return cleaned(text_of(ids, true));
  }
  [[nodiscard]] std::string decode_exactly(std::span<const std::int32_t> ids) const override {
    return text_of(ids, false);
  }
  [[nodiscard]] std::string bytes_of(std::int32_t id) const override;
  [[nodiscard]] std::int64_t vocab_size() const override { return vocab_size_; }
  [[nodiscard]] std::int64_t base_vocab_size() const override;
  [[nodiscard]] SpecialIds special() const override { return special_; }
  [[nodiscard]] std::int32_t id_of(std::string_view piece) const override;
  [[nodiscard]] std::string piece_of(std::int32_t id) const override;
  [[nodiscard]] std::int32_t eod() const override { return special_.eos; }

  /// Ids and segments of two texts.
  [[nodiscard]] Encoding encode_pair(std::string_view first, std::string_view second,
                                     bool with_special) const;
  [[nodiscard]] const TokenizerParts& parts() const { return parts_; }

  // What a file beside tokenizer.json says; before the first use.
  void set_special(const SpecialIds& ids) { special_ = ids; }
  void set_post_processor(PostProcessor processor) { parts_.post_processor = std::move(processor); }
  /// encode_document() puts special ids around the text.
  void set_special_in_documents(bool on) { special_in_documents_ = on; }

 private:
  [[nodiscard]] std::string text_of(std::span<const std::int32_t> ids, bool keep_special) const;
  [[nodiscard]] std::string cleaned(std::string text) const;
  void find_byte_level();
  void encode_text(std::string_view text, std::vector<std::int32_t>& ids) const;
  void encode_words(std::string_view text, bool first, GrowthLimit& words,
                    std::vector<std::int32_t>& ids) const;
  // `words`: of the whole text, whatever its parts are.
  void normalize_and_encode(std::span<const Normalizer> normalizers, std::string_view text, bool first,
                            GrowthLimit& words, std::vector<std::int32_t>& ids) const;
  void encode_normal(std::string_view text, bool first, GrowthLimit& words,
                     std::vector<std::int32_t>& ids) const;
  void encode_bytes(std::string_view text, std::vector<std::int32_t>& ids) const;

  TokenizerParts parts_;
  AddedTokens raw_added_, normal_added_;
  std::unordered_map<std::int32_t, std::string> added_texts_;
  std::unordered_set<std::string> special_texts_;
  std::int64_t vocab_size_ = 0;
  SpecialIds special_;
  bool special_in_documents_ = false;
  std::unique_ptr<ByteBpe> byte_bpe_;  ///< null: the general way
  std::optional<WordCutter> cutter_;   ///< one rule cuts all words; else the steps do
  bool prefix_space_ = false;
  std::optional<WordBorders> borders_;  ///< of the general way; nothing: texts are encoded as a whole
  mutable Pool<WordCache> caches_;
};

}  // namespace colonnade::tokenizers
