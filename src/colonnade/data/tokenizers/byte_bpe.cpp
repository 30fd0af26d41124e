// See byte_bpe.h. Most words are short and have been seen: the loop over them cuts, hashes 16 bytes, compares
// them and copies four ids.
#include "colonnade/data/tokenizers/byte_bpe.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

namespace colonnade::data {
namespace {

constexpr std::size_t kShortBytes = 15, kShortIds = 4, kBatch = 192;
constexpr int kShortBits = 17, kLongBits = 15;  // of the number of places
constexpr std::size_t kLongBytes = 256;

/// A word of up to 15 bytes, its length in the top half byte.
struct Key {
  std::uint64_t low = 0, high = 0;
};

constexpr std::uint64_t kCountMask = std::uint64_t{15} << 56;  // the low half of the top byte

/// Bytes of a word of each length, as masks of the two halves.
struct Masks {
  std::array<std::uint64_t, 16> low{}, high{};
  constexpr Masks() {
    for (std::size_t size = 0; size < 16; ++size) {
      low[size] = size >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * size)) - 1;
      high[size] = size <= 8 ? 0 : (std::uint64_t{1} << (8 * (size - 8))) - 1;
    }
  }
};
constexpr Masks kMasks;

/// `readable`: bytes that may be read from the word's begin on.
inline Key key_of(const char* word, std::size_t size, std::size_t readable) {
  Key key;
  if (readable >= 16) [[likely]] {
    std::memcpy(&key, word, 16);
  } else {
    std::memcpy(&key, word, size);
  }
  key.low &= kMasks.low[size];
  key.high = (key.high & kMasks.high[size]) | std::uint64_t{size} << 60;
  return key;
}

inline std::size_t place_of(const Key& key) {
  const std::uint64_t hash = (key.low ^ (key.high * 0xD6E8FEB86659FD93ULL)) * 0x9E3779B97F4A7C15ULL;
  return (hash ^ (hash << 29)) >> (64 - kShortBits);
}

}  // namespace

class ByteBpe::Cache {
 public:
  struct Short {
    std::uint64_t low = 0, high = 0;  ///< a key with the number of ids in the second half of the top byte
    std::array<std::int32_t, kShortIds> ids{};

    [[nodiscard]] bool is(const Key& key) const { return low == key.low && (high & ~kCountMask) == key.high; }
    [[nodiscard]] std::size_t count() const { return (high & kCountMask) >> 56; }
  };
  /// Words that fall onto the same place: the newest, and the one before it. Fills a cache line.
  struct alignas(64) Place {
    std::array<Short, 2> words;
    [[nodiscard]] const Short* find(const Key& key) const {
      return words[0].is(key) ? &words[0] : words[1].is(key) ? &words[1] : nullptr;
    }
  };
  struct Long {
    std::string word;
    std::vector<std::int32_t> ids;
  };

  explicit Cache(const Vocabulary& whole_words) {
    ::madvise(short_words.get(), kPlaces * sizeof(Place),
              MADV_HUGEPAGE);  // else every look is a miss of the TLB
    std::uninitialized_value_construct_n(short_words.get(), kPlaces);
    for (auto id = static_cast<std::int32_t>(whole_words.end()); id-- > 0;)  // the most frequent come last
      if (const auto word = whole_words.text_of(id); word && word->size() <= kShortBytes)
        keep(key_of(word->data(), word->size(), word->size()), {id});
  }

  void keep(const Key& key, const std::vector<std::int32_t>& ids) {
    Place& place = short_words[place_of(key)];
    place.words[1] = place.words[0];
    Short& entry = place.words[0];
    entry.low = key.low;
    entry.high = key.high | std::uint64_t{ids.size()} << 56;
    std::copy(ids.begin(), ids.end(), entry.ids.begin());
  }

  struct Free {
    void operator()(Place* places) const { std::free(places); }
  };
  static constexpr std::size_t kPlaces = std::size_t{1} << kShortBits, kHugePage = std::size_t{1} << 21;
  std::unique_ptr<Place[], Free> short_words{
      static_cast<Place*>(std::aligned_alloc(kHugePage, kPlaces * sizeof(Place)))};
  std::vector<Long> long_words = std::vector<Long>(std::size_t{1} << kLongBits);
  std::vector<std::int32_t> scratch;
};

/// A cache for as long as one call lasts.
class ByteBpe::Lease {
 public:
  explicit Lease(const ByteBpe& owner) : owner_(owner) {
    {
      const std::lock_guard lock(owner.mutex_);
      if (!owner.idle_.empty()) {
        cache_ = std::move(owner.idle_.back());
        owner.idle_.pop_back();
      }
    }
    if (cache_ == nullptr) cache_ = std::make_unique<Cache>(owner.whole_words_);
  }
  ~Lease() {
    const std::lock_guard lock(owner_.mutex_);
    owner_.idle_.push_back(std::move(cache_));
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  [[nodiscard]] Cache& cache() { return *cache_; }

 private:
  const ByteBpe& owner_;
  std::unique_ptr<Cache> cache_;
};

ByteBpe::ByteBpe(const std::array<std::int32_t, 256>& bytes, Merges merges, Vocabulary whole_words,
                 bool merges_agree)
    : bytes_(bytes), merges_(std::move(merges)), whole_words_(std::move(whole_words)) {
  if (merges_agree) return;
  std::vector<std::pair<std::string_view, std::int64_t>> others;
  std::vector<std::int32_t> own;
  for (std::int32_t id = 0; id < whole_words_.end(); ++id) {
    const auto word = whole_words_.text_of(id);
    if (!word) continue;
    merge(*word, own);
    if (own != std::vector{id}) others.emplace_back(*word, id);
  }
  unmerged_ = Vocabulary(others, "vocabulary");
}

ByteBpe::~ByteBpe() = default;

void ByteBpe::merge(std::string_view word, std::vector<std::int32_t>& own) const {
  if (const std::int32_t id = unmerged_.id_of(word); id >= 0) {
    own.assign(1, id);
    return;
  }
  own.resize(word.size());
  for (std::size_t i = 0; i < word.size(); ++i) own[i] = bytes_[static_cast<unsigned char>(word[i])];
  merges_.apply(own);
}

void ByteBpe::add(std::string_view word, Cache& cache, std::vector<std::int32_t>& ids) const {
  const std::vector<std::int32_t>* own = &cache.scratch;
  if (word.size() <= kShortBytes || word.size() > kLongBytes) {
    merge(word, cache.scratch);
    if (word.size() <= kShortBytes && own->size() <= kShortIds)
      cache.keep(key_of(word.data(), word.size(), word.size()), *own);
  } else {
    Cache::Long& entry = cache.long_words[hash_bytes(word) >> (64 - kLongBits)];
    if (entry.word != word) {
      merge(word, entry.ids);
      entry.word = word;
    }
    own = &entry.ids;
  }
  ids.insert(ids.end(), own->begin(), own->end());
}

/// Words go in batches: all are cut, then hashed and their places fetched, then looked up.
void ByteBpe::encode(const WordCutter& cutter, std::string_view text, std::vector<std::int32_t>& ids) const {
  Lease lease(*this);
  Cache& cache = lease.cache();
  std::array<std::int32_t, kBatch * kShortIds> buffer;
  std::array<const char*, kBatch> ends;
  std::array<Key, kBatch> keys;
  std::array<std::uint32_t, kBatch> places;
  const char* end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const std::size_t count = cutter.cut(at, end, ends);
    const char* word = at;
    for (std::size_t i = 0; i < count; ++i) {
      const auto size = static_cast<std::size_t>(ends[i] - word);
      keys[i] = key_of(word, std::min(size, kShortBytes), static_cast<std::size_t>(end - word));
      places[i] = static_cast<std::uint32_t>(place_of(keys[i]));
      __builtin_prefetch(&cache.short_words[places[i]]);
      word = ends[i];
    }
    std::size_t filled = 0;
    const auto flush = [&] {
      ids.insert(ids.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(filled));
      filled = 0;
    };
    for (std::size_t i = 0; i < count; at = ends[i++]) {
      const auto size = static_cast<std::size_t>(ends[i] - at);
      const Cache::Short* entry = size <= kShortBytes ? cache.short_words[places[i]].find(keys[i]) : nullptr;
      if (entry != nullptr) [[likely]] {
        std::memcpy(buffer.data() + filled, entry->ids.data(), sizeof entry->ids);
        filled += entry->count();
        continue;
      }
      flush();
      add({at, size}, cache, ids);
    }
    flush();
  }
}

void ByteBpe::encode(const std::vector<std::string_view>& words, std::vector<std::int32_t>& ids) const {
  Lease lease(*this);
  Cache& cache = lease.cache();
  for (const std::string_view word : words) {
    const Cache::Short* entry = nullptr;
    if (word.size() <= kShortBytes) {
      const Key key = key_of(word.data(), word.size(), word.size());
      entry = cache.short_words[place_of(key)].find(key);
    }
    if (entry != nullptr) {
      ids.insert(ids.end(), entry->ids.begin(),
                 entry->ids.begin() + static_cast<std::ptrdiff_t>(entry->count()));
    } else {
      add(word, cache, ids);
    }
  }
}

}  // namespace colonnade::data
