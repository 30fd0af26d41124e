// Byte-level BPE on raw bytes with a word cache.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "colonnade/tokenizers/merges.h"
#include "colonnade/tokenizers/pool.h"
#include "colonnade/tokenizers/split_patterns.h"
#include "colonnade/tokenizers/vocabulary.h"

namespace colonnade::tokenizers {

/// Every byte has an id, so every word can be encoded. A cache serves words seen before: about 10 MB for each
/// thread that encodes concurrently, and at most 40 MB more for words of 16 to 256 bytes. Const functions are
/// thread-safe.
class ByteBpe {
 public:
  /// `bytes`: ids of single bytes. `whole_words`: words that are one token regardless of the merges (may be
  /// empty). `merges_agree`: whether the merges produce the same token for each of these.
  ByteBpe(const std::array<std::int32_t, 256>& bytes, Merges merges, Vocabulary whole_words,
          bool merges_agree);
  ~ByteBpe();
  ByteBpe(const ByteBpe&) = delete;
  ByteBpe& operator=(const ByteBpe&) = delete;

  /// Appends the ids of the words of `text`, valid UTF-8 that `splitter` splits.
  void encode(const WordSplitter& splitter, std::string_view text, std::vector<std::int32_t>& ids) const;
  /// Appends the ids of words in order.
  void encode(const std::vector<std::string_view>& words, std::vector<std::int32_t>& ids) const;

 private:
  class Cache;
  void add(std::string_view word, Cache& cache, std::vector<std::int32_t>& ids) const;
  /// The ids of a nonempty word; stored in `own`.
  std::span<const std::int32_t> merge(std::string_view word, std::vector<std::int32_t>& own) const;

  std::array<std::int32_t, 256> bytes_;
  Merges merges_;
  std::vector<std::uint32_t> pair_index_ = std::vector<std::uint32_t>(65536);  ///< byte pair to index below
  std::vector<Merges::Lookup> pair_merges_;                                    ///< [0]: no merge
  Vocabulary whole_words_;
  Vocabulary unmerged_;  ///< whole words that the merges split differently
  mutable Pool<Cache> caches_;
};

}  // namespace colonnade::tokenizers
