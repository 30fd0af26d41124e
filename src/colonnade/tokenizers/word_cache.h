// Where a text may be cut so that its words can be encoded one by one, and the ids of words seen before.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "colonnade/tokenizers/model.h"
#include "colonnade/tokenizers/normalizer.h"
#include "colonnade/tokenizers/pre_tokenizer.h"
#include "colonnade/tokenizers/vocabulary.h"

namespace colonnade::tokenizers {

/// Places where a text may be cut, most of them in front of white space: what follows is encoded as it would
/// be within the text, but for what normalizers put in front of a whole text (Prepend).
class WordBorders {
 public:
  /// Nothing: what the parts make of a word depends on the words beside it, or nobody has shown that it does
  /// not. Shown are the ways of BERT (words cut at white space), T5 (words with a mark in front) and Llama 2
  /// (merges of a whole text of which none crosses a mark).
  static std::optional<WordBorders> of(std::span<const Normalizer> normalizers,
                                       const std::vector<PreTokenizer>& pre_tokenizers, const Model& model);

  /// The first border behind `at`, or the end. Borders stand between characters that neither join others nor
  /// are joined by them, and have a space between them.
  [[nodiscard]] std::size_t next(std::string_view text, std::size_t at) const;

 private:
  std::array<bool, 256> spaces_{};  ///< a border in front of it
  std::array<bool, 256> alone_{};   ///< a border in front of it and behind it
};

/// The ids of short words: two words for each place, of which a new one takes the second, and one that is
/// found there changes places with the first. 6 MB.
class WordCache {
 public:
  /// Appends the ids of `word`; `encode(word, ids)` appends them where they are not known.
  template <typename Encode>
  void append(std::string_view word, std::vector<std::int32_t>& ids, Encode&& encode) {
    if (word.empty() || word.size() > kLongest) return encode(word, ids);
    auto& [first, second] = places_[hash_bytes(word) >> (64 - kBits)];
    if (second.is(word)) std::swap(first, second);
    if (!first.is(word)) {
      const std::size_t before = ids.size();
      encode(word, ids);
      (first.size == 0 ? first : second).set(word, ids, before);
      return;
    }
    ids.insert(ids.end(), first.ids.begin(), first.ids.begin() + first.count);
  }

 private:
  static constexpr std::size_t kLongest = 46, kMostIds = 12;
  static constexpr int kBits = 15;
  struct Entry {
    std::array<char, kLongest> text{};
    std::uint8_t size = 0;  ///< 0: no word
    std::uint8_t count = 0;
    std::array<std::int32_t, kMostIds> ids{};

    [[nodiscard]] bool is(std::string_view word) const {
      return size == word.size() && std::memcmp(text.data(), word.data(), size) == 0;
    }
    /// `all` from `before` on are the word's.
    void set(std::string_view word, const std::vector<std::int32_t>& all, std::size_t before) {
      if (all.size() - before > kMostIds) return;
      size = static_cast<std::uint8_t>(word.size());
      count = static_cast<std::uint8_t>(all.size() - before);
      std::memcpy(text.data(), word.data(), size);
      std::copy(all.begin() + static_cast<std::ptrdiff_t>(before), all.end(), ids.begin());
    }
  };
  std::vector<std::pair<Entry, Entry>> places_ =
      std::vector<std::pair<Entry, Entry>>(std::size_t{1} << kBits);
};

}  // namespace colonnade::tokenizers
