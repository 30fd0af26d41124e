// See byte_bpe.h. Most words are short and cached: the loop over them splits, hashes 16 bytes, compares them
// and copies four ids.
#include "colonnade/tokenizers/byte_bpe.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

namespace colonnade::tokenizers {
namespace {

constexpr std::size_t kShortBytes = 15, kShortIds = 4, kBatch = 256;
constexpr int kShortBits = 17, kLongBits = 15;  // log2 of the number of buckets
constexpr std::size_t kLongBytes = 256;

using Bytes = unsigned char __attribute__((vector_size(16)));

/// Key of a word of up to 15 bytes: the bytes, zeros, and the length in the high half of the last byte.
/// Longer words get a key that no word has.
struct Key {
  std::uint64_t low = 0, high = 0;
};
constexpr std::uint64_t kCountMask = std::uint64_t{15} << 56;  // low half of the last byte

/// By length of a word: mask of its bytes, and the last byte of its key.
struct Masks {
  using Row = std::array<unsigned char, 16>;
  std::array<Row, 17> bytes{}, length{};
  constexpr Masks() {
    for (std::size_t size = 0; size < 16; ++size) {
      for (std::size_t i = 0; i < size; ++i) bytes[size][i] = 0xFF;
      length[size][15] = static_cast<unsigned char>(size << 4);
    }
    length[16][0] = 1;
  }
};
constexpr Masks kMasks;

inline Bytes bytes_of(const Masks::Row& row) { return std::bit_cast<Bytes>(row); }
/// Reads sixteen bytes from the start of the word.
inline Key key_of(const char* word, std::size_t size) {
  Bytes bytes;
  std::memcpy(&bytes, word, sizeof bytes);
  const std::size_t row = std::min<std::size_t>(size, 16);
  return std::bit_cast<Key>((bytes & bytes_of(kMasks.bytes[row])) | bytes_of(kMasks.length[row]));
}

/// Makes 16-byte reads safe within a text: the last bytes are read from a zero-padded copy.
class Padded {
 public:
  explicit Padded(std::string_view text) {
    const std::size_t size = std::min(text.size(), kCopied);
    copied_ = text.data() + (text.size() - size);
    std::memcpy(copy_.data(), copied_, size);
  }
  [[nodiscard]] const char* at(const char* word) const {
    return word < copied_ ? word : copy_.data() + (word - copied_);
  }

 private:
  static constexpr std::size_t kCopied = 16;
  std::array<char, 2 * kCopied> copy_{};
  const char* copied_;
};

inline std::size_t bucket_of(const Key& key) {
  return ((key.low ^ (key.high * 0xD6E8FEB86659FD93ULL)) * 0x9E3779B97F4A7C15ULL) >> (64 - kShortBits);
}

}  // namespace

class ByteBpe::Cache {
 public:
  struct Short {
    std::uint64_t low = 0, high = 0;  ///< key, with the number of ids in the low half of the top byte
    std::array<std::int32_t, kShortIds> ids{};

    /// Zero if the key is that of this word.
    [[nodiscard]] std::uint64_t difference(const Key& key) const {
      return (low ^ key.low) | ((high ^ key.high) & ~kCountMask);
    }
    [[nodiscard]] std::size_t count() const { return (high & kCountMask) >> 56; }
  };
  /// Two words with the same hash, in one cache line. The first is the most recently found; a new word
  /// replaces the second, so that rare words do not evict frequent ones.
  struct alignas(64) Bucket {
    std::array<Short, 2> words;
    [[nodiscard]] const Short* find(const Key& key) {
      if (words[0].difference(key) == 0) [[likely]]
        return &words[0];
      if (words[1].difference(key) != 0) return nullptr;
      std::swap(words[0], words[1]);
      return &words[0];
    }
  };
  struct Long {
    std::string word;
    std::vector<std::int32_t> ids;
  };

  explicit Cache(const Vocabulary& whole_words) {
    ::madvise(short_words.get(), kBuckets * sizeof(Bucket),
              MADV_HUGEPAGE);  // without it every lookup misses the TLB
    std::uninitialized_value_construct_n(short_words.get(), kBuckets);
    for (std::int32_t id = 0; id < whole_words.end(); ++id)
      if (const auto word = whole_words.text_of(id); word && word->size() <= kShortBytes)
        insert(key_of(Padded(*word).at(word->data()), word->size()), {&id, 1});
  }

  void insert(const Key& key, std::span<const std::int32_t> ids) {
    Bucket& bucket = short_words[bucket_of(key)];
    Short& entry = bucket.words[bucket.words[0].high == 0 ? 0 : 1];
    entry.low = key.low;
    entry.high = key.high | std::uint64_t{ids.size()} << 56;
    std::copy(ids.begin(), ids.end(), entry.ids.begin());
  }

  struct Free {
    void operator()(Bucket* buckets) const { std::free(buckets); }
  };
  static constexpr std::size_t kBuckets = std::size_t{1} << kShortBits, kHugePage = std::size_t{1} << 21;
  std::unique_ptr<Bucket[], Free> short_words{
      static_cast<Bucket*>(std::aligned_alloc(kHugePage, kBuckets * sizeof(Bucket)))};
  std::vector<std::int32_t> scratch;
  std::vector<Long> long_words = std::vector<Long>(std::size_t{1} << kLongBits);
};

ByteBpe::ByteBpe(const std::array<std::int32_t, 256>& bytes, Merges merges, Vocabulary whole_words,
                 bool merges_agree)
    : bytes_(bytes), merges_(std::move(merges)), whole_words_(std::move(whole_words)) {
  pair_merges_.emplace_back();
  for (std::size_t pair = 0; pair < pair_index_.size(); ++pair) {
    const Merges::Lookup found = merges_.find(bytes_[pair >> 8], bytes_[pair & 0xFF]);
    if (found.rank == Merges::kNone) continue;
    pair_index_[pair] = static_cast<std::uint32_t>(pair_merges_.size());
    pair_merges_.push_back(found);
  }
  if (merges_agree) return;
  std::vector<std::pair<std::string_view, std::int64_t>> others;
  std::vector<std::int32_t> own;
  for (std::int32_t id = 0; id < whole_words_.end(); ++id) {
    const auto word = whole_words_.text_of(id);
    if (!word) continue;
    const std::span<const std::int32_t> ids = merge(*word, own);
    if (ids.size() != 1 || ids[0] != id) others.emplace_back(*word, id);
  }
  unmerged_ = Vocabulary(others, "vocabulary");
}

ByteBpe::~ByteBpe() = default;

std::span<const std::int32_t> ByteBpe::merge(std::string_view word, std::vector<std::int32_t>& own) const {
  if (own.size() < word.size()) own.resize(word.size());
  if (const std::int32_t id = unmerged_.size() == 0 ? -1 : unmerged_.id_of(word); id >= 0) {
    own[0] = id;
    return {own.data(), 1};
  }
  for (std::size_t i = 0; i < word.size(); ++i) own[i] = bytes_[static_cast<unsigned char>(word[i])];
  if (word.size() > Merges::kShort) {
    own.resize(word.size());
    merges_.apply(own);
    return own;
  }
  std::array<Merges::Lookup, Merges::kShort> pairs;
  for (std::size_t i = 0; i + 1 < word.size(); ++i) {
    const auto left = static_cast<unsigned char>(word[i]), right = static_cast<unsigned char>(word[i + 1]);
    pairs[i] = pair_merges_[pair_index_[std::size_t{left} << 8 | right]];
  }
  return {own.data(), merges_.apply(own.data(), pairs.data(), word.size())};
}

void ByteBpe::add(std::string_view word, Cache& cache, std::vector<std::int32_t>& ids) const {
  std::span<const std::int32_t> own;
  if (word.size() <= kShortBytes || word.size() > kLongBytes) {
    own = merge(word, cache.scratch);
    if (word.size() <= kShortBytes && own.size() <= kShortIds)
      cache.insert(key_of(Padded(word).at(word.data()), word.size()), own);
  } else {
    Cache::Long& entry = cache.long_words[hash_bytes(word) >> (64 - kLongBits)];
    if (entry.word != word) {
      own = merge(word, cache.scratch);
      entry.ids.assign(own.begin(), own.end());
      entry.word = word;
    }
    own = entry.ids;
  }
  ids.insert(ids.end(), own.begin(), own.end());
}

/// Words are processed in batches: split, then hashed with a prefetch of their buckets, then looked up.
void ByteBpe::encode(const WordSplitter& splitter, std::string_view text,
                     std::vector<std::int32_t>& ids) const {
  const auto lease = caches_.acquire([&] { return std::make_unique<Cache>(whole_words_); });
  Cache& cache = *lease;
  std::array<std::int32_t, kBatch * kShortIds> buffer;
  std::array<const char*, kBatch> ends;
  std::array<Key, kBatch> keys;
  std::array<Cache::Bucket*, kBatch> buckets;
  const Padded padded(text);
  const char* end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const std::size_t count = splitter.split(at, end, ends);
    const char* word = at;
    for (std::size_t i = 0; i < count; ++i) {
      keys[i] = key_of(padded.at(word), static_cast<std::size_t>(ends[i] - word));
      buckets[i] = &cache.short_words[bucket_of(keys[i])];
      __builtin_prefetch(buckets[i]);
      word = ends[i];
    }
    std::size_t filled = 0;
    const auto flush = [&] {
      ids.insert(ids.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(filled));
      filled = 0;
    };
    for (std::size_t i = 0; i < count; at = ends[i++]) {
      const Cache::Short* entry = buckets[i]->find(keys[i]);
      if (entry != nullptr) [[likely]] {
        std::memcpy(buffer.data() + filled, entry->ids.data(), sizeof entry->ids);
        filled += entry->count();
        continue;
      }
      flush();
      add({at, static_cast<std::size_t>(ends[i] - at)}, cache, ids);
    }
    flush();
  }
}

void ByteBpe::encode(const std::vector<std::string_view>& words, std::vector<std::int32_t>& ids) const {
  const auto lease = caches_.acquire([&] { return std::make_unique<Cache>(whole_words_); });
  Cache& cache = *lease;
  for (const std::string_view word : words) {
    const Cache::Short* entry = nullptr;
    if (word.size() <= kShortBytes) {
      const Key key = key_of(Padded(word).at(word.data()), word.size());
      entry = cache.short_words[bucket_of(key)].find(key);
    }
    if (entry != nullptr) {
      ids.insert(ids.end(), entry->ids.begin(),
                 entry->ids.begin() + static_cast<std::ptrdiff_t>(entry->count()));
    } else {
      add(word, cache, ids);
    }
  }
}

}  // namespace colonnade::tokenizers
