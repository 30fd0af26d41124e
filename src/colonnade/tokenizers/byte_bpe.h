// Byte-level byte pair encoding on raw bytes, with a cache of words.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "colonnade/tokenizers/cut_rules.h"
#include "colonnade/tokenizers/merges.h"
#include "colonnade/tokenizers/pool.h"
#include "colonnade/tokenizers/vocabulary.h"

namespace colonnade::tokenizers {

/// Every byte has an id, so that every word has ids. Words seen before come out of a cache, which holds about
/// 10 MB for each thread that encodes at one time, and at most 40 MB more for words of 16 to 256 bytes. Const
/// functions are safe to call from many threads.
class ByteBpe {
 public:
  /// `bytes`: the ids of single bytes; `whole_words`: words that are one token, whatever the merges say (may
  /// be empty); `merges_agree`: the merges make the same token of each.
  ByteBpe(const std::array<std::int32_t, 256>& bytes, Merges merges, Vocabulary whole_words,
          bool merges_agree);
  ~ByteBpe();
  ByteBpe(const ByteBpe&) = delete;
  ByteBpe& operator=(const ByteBpe&) = delete;

  /// Appends the ids of the words that `cutter` cuts valid UTF-8 `text` into.
  void encode(const WordCutter& cutter, std::string_view text, std::vector<std::int32_t>& ids) const;
  /// Appends the ids of words one after another.
  void encode(const std::vector<std::string_view>& words, std::vector<std::int32_t>& ids) const;

 private:
  class Cache;
  void add(std::string_view word, Cache& cache, std::vector<std::int32_t>& ids) const;
  /// The ids of a word, not empty, in `own`.
  std::span<const std::int32_t> merge(std::string_view word, std::vector<std::int32_t>& own) const;

  std::array<std::int32_t, 256> bytes_;
  Merges merges_;
  std::vector<std::uint32_t> pairs_ = std::vector<std::uint32_t>(65536);  ///< of bytes: places in found_
  std::vector<Merges::Found> found_;                                      ///< the first: no merge
  Vocabulary whole_words_;
  Vocabulary unmerged_;  ///< those of them that the merges cut otherwise
  mutable Pool<Cache> caches_;
};

}  // namespace colonnade::tokenizers
