// Word boundaries at which a text can be split for encoding, and a cache of the words' ids.
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

/// Offsets where a text can be split, most of them before white space: the words are encoded as within the
/// text, except for the text that Prepend adds before a whole text.
class WordBoundaries {
 public:
  /// The boundaries for a tokenizer; nullopt if the encoding of a word may depend on its neighbours. Proven
  /// to be independent: BERT (words split at white space), T5 (words with a leading mark) and Llama 2 (merges
  /// over the whole text, none of which crosses a mark).
  static std::optional<WordBoundaries> find(std::span<const Normalizer> normalizers,
                                            const std::vector<PreTokenizer>& pre_tokenizers,
                                            const Model& model);

  /// The first boundary at or after `at`; the end if there is none. The characters on both sides never
  /// combine with neighbours, and there is a space between them.
  [[nodiscard]] std::size_t next(std::string_view text, std::size_t at) const;

 private:
  std::array<bool, 256> spaces_{};    ///< characters with a boundary before them
  std::array<bool, 256> isolated_{};  ///< characters with a boundary before and after them
};

/// A two-way set-associative cache of the ids of short words. A new word replaces the second entry; a hit
/// there swaps the entries. 6 MB.
class WordCache {
 public:
  /// Appends the ids of `word`; on a miss, `encode(word, ids)` appends them.
  template <typename Encode>
  void append(std::string_view word, std::vector<std::int32_t>& ids, Encode&& encode) {
    if (word.empty() || word.size() > kMaxBytes) return encode(word, ids);
    auto& [first, second] = sets_[hash_bytes(word) >> (64 - kBits)];
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
  static constexpr std::size_t kMaxBytes = 46, kMaxIds = 12;
  static constexpr int kBits = 15;
  struct Entry {
    std::array<char, kMaxBytes> text{};
    std::uint8_t size = 0;  ///< 0 if the entry is empty
    std::uint8_t count = 0;
    std::array<std::int32_t, kMaxIds> ids{};

    [[nodiscard]] bool is(std::string_view word) const {
      return size == word.size() && std::memcmp(text.data(), word.data(), size) == 0;
    }
    /// Stores the ids in `all` from index `before`.
    void set(std::string_view word, const std::vector<std::int32_t>& all, std::size_t before) {
      if (all.size() - before > kMaxIds) return;
      size = static_cast<std::uint8_t>(word.size());
      count = static_cast<std::uint8_t>(all.size() - before);
      std::memcpy(text.data(), word.data(), size);
      std::copy(all.begin() + static_cast<std::ptrdiff_t>(before), all.end(), ids.begin());
    }
  };
  std::vector<std::pair<Entry, Entry>> sets_ = std::vector<std::pair<Entry, Entry>>(std::size_t{1} << kBits);
};

}  // namespace colonnade::tokenizers
