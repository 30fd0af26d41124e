// A tokenizer made of the components of a Hugging Face tokenizer.json.
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
#include "colonnade/tokenizers/growth_limit.h"
#include "colonnade/tokenizers/model.h"
#include "colonnade/tokenizers/normalizer.h"
#include "colonnade/tokenizers/pool.h"
#include "colonnade/tokenizers/post_processor.h"
#include "colonnade/tokenizers/pre_tokenizer.h"
#include "colonnade/tokenizers/tokenizer.h"
#include "colonnade/tokenizers/word_cache.h"

namespace colonnade::tokenizers {

struct TokenizerComponents {
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  std::unique_ptr<Model> model;
  PostProcessor post_processor;
  std::vector<Decoder> decoders;
  std::vector<AddedToken> added;  ///< with their ids
  bool clean_up_spaces = false;   ///< whether decoded texts go through clean_up_tokenization_spaces()
};

/// Encodes and decodes as Hugging Face tokenizers does. Byte-level models whose vocabulary has every byte
/// encode raw bytes directly.
class HfTokenizer final : public Tokenizer {
 public:
  explicit HfTokenizer(TokenizerComponents components);

  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const override;
  [[nodiscard]] std::vector<std::int32_t> encode_with_special(std::string_view text) const override;
  [[nodiscard]] std::vector<std::int32_t> encode_document(std::string_view text) const override;
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override {
    return cleaned(text_of(ids, false));
  }
  [[nodiscard]] std::string decode_with_special(std::span<const std::int32_t> ids) const override {
    return cleaned(text_of(ids, true));
  }
  [[nodiscard]] std::string decode_without_cleanup(std::span<const std::int32_t> ids) const override {
    return text_of(ids, false);
  }
  [[nodiscard]] std::string bytes_of(std::int32_t id) const override;
  [[nodiscard]] std::int64_t vocab_size() const override { return vocab_size_; }
  [[nodiscard]] std::int64_t base_vocab_size() const override;
  [[nodiscard]] SpecialIds special() const override { return special_; }
  [[nodiscard]] std::int32_t id_of(std::string_view piece) const override;
  [[nodiscard]] std::string piece_of(std::int32_t id) const override;
  [[nodiscard]] std::int32_t eod() const override { return special_.eos; }

  /// Ids and token types of two texts.
  [[nodiscard]] Encoding encode_pair(std::string_view first, std::string_view second,
                                     bool with_special) const;
  [[nodiscard]] const TokenizerComponents& components() const { return components_; }

  // Settings of the files next to tokenizer.json; call before the first use.
  void set_special(const SpecialIds& ids) { special_ = ids; }
  void set_post_processor(PostProcessor processor) { components_.post_processor = std::move(processor); }
  /// Whether encode_document() adds special ids.
  void set_special_in_documents(bool on) { special_in_documents_ = on; }

 private:
  [[nodiscard]] std::string text_of(std::span<const std::int32_t> ids, bool keep_special) const;
  [[nodiscard]] std::string cleaned(std::string text) const;
  void set_up_byte_level();
  void encode_text(std::string_view text, std::vector<std::int32_t>& ids) const;
  void encode_words(std::string_view text, bool first, GrowthLimit& words,
                    std::vector<std::int32_t>& ids) const;
  // `words`: growth limit of the whole text.
  void normalize_and_encode(std::span<const Normalizer> normalizers, std::string_view text, bool first,
                            GrowthLimit& words, std::vector<std::int32_t>& ids) const;
  void encode_normalized(std::string_view text, bool first, GrowthLimit& words,
                         std::vector<std::int32_t>& ids) const;
  void encode_bytes(std::string_view text, std::vector<std::int32_t>& ids) const;

  TokenizerComponents components_;
  AddedTokens raw_added_, normalized_added_;
  std::unordered_map<std::int32_t, std::string> added_texts_;
  std::unordered_set<std::string> special_texts_;
  std::int64_t vocab_size_ = 0;
  SpecialIds special_;
  bool special_in_documents_ = false;
  std::unique_ptr<ByteBpe> byte_bpe_;     ///< null if the general path encodes
  std::optional<WordSplitter> splitter_;  ///< set if one pattern splits all words; else the steps do
  bool prefix_space_ = false;
  std::optional<WordBoundaries> boundaries_;  ///< for the general path; nullopt if it encodes whole texts
  mutable Pool<WordCache> caches_;
};

}  // namespace colonnade::tokenizers
