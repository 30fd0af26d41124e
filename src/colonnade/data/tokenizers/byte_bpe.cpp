// See byte_bpe.h. Most words are short and have been seen: the loop over them cuts, hashes 16 bytes, compares
// them and copies four ids.
#include "colonnade/data/tokenizers/byte_bpe.h"

#include <cstring>
#include <string>

namespace colonnade::data {
namespace {

constexpr std::size_t kShortBytes = 15, kShortIds = 4;
constexpr int kShortBits = 16, kLongBits = 12;  // of the number of entries
constexpr std::size_t kLongBytes = 256;

/// A word of up to 15 bytes, its length in the top half byte.
struct Key {
  std::uint64_t low = 0, high = 0;
};

constexpr std::uint64_t kCountMask = std::uint64_t{15} << 56;  // the low half of the top byte

/// `readable`: bytes that may be read from the word's begin on.
inline Key key_of(const char* word, std::size_t size, std::size_t readable) {
  Key key;
  if (readable >= 16) [[likely]] {
    std::memcpy(&key.low, word, 8);
    std::memcpy(&key.high, word + 8, 8);
  } else {
    char copy[16] = {};
    std::memcpy(copy, word, size);
    std::memcpy(&key.low, copy, 8);
    std::memcpy(&key.high, copy + 8, 8);
  }
  if (size >= 8) {
    key.high &= (std::uint64_t{1} << (8 * (size - 8))) - 1;
  } else {
    key.low &= (std::uint64_t{1} << (8 * size)) - 1;
    key.high = 0;
  }
  key.high |= std::uint64_t{size} << 60;
  return key;
}

inline std::size_t place_of(const Key& key, int bits) {
  const std::uint64_t hash = (key.low ^ (key.high * 0xD6E8FEB86659FD93ULL)) * 0x9E3779B97F4A7C15ULL;
  return (hash ^ (hash << 29)) >> (64 - bits);
}

}  // namespace

class ByteBpe::Cache {
 public:
  struct alignas(32) Short {
    std::uint64_t low = 0, high = 0;  ///< a key with the number of ids in the second half of the top byte
    std::array<std::int32_t, kShortIds> ids{};
  };
  struct Long {
    std::string word;
    std::vector<std::int32_t> ids;
  };

  std::vector<Short> short_words = std::vector<Short>(std::size_t{1} << kShortBits);
  std::vector<Long> long_words = std::vector<Long>(std::size_t{1} << kLongBits);
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
    if (cache_ == nullptr) cache_ = std::make_unique<Cache>();
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

ByteBpe::ByteBpe(const std::array<std::int32_t, 256>& bytes, Merges merges, Vocabulary whole_words)
    : bytes_(bytes), merges_(std::move(merges)), whole_words_(std::move(whole_words)) {}

ByteBpe::~ByteBpe() = default;

std::vector<std::int32_t> ByteBpe::merge(std::string_view word) const {
  if (const std::int32_t id = whole_words_.id_of(word); id >= 0) return {id};
  std::vector<std::int32_t> ids(word.size());
  for (std::size_t i = 0; i < word.size(); ++i) ids[i] = bytes_[static_cast<unsigned char>(word[i])];
  merges_.apply(ids);
  return ids;
}

void ByteBpe::add_new(std::string_view word, Cache& cache, std::vector<std::int32_t>& ids) const {
  const std::vector<std::int32_t> own = merge(word);
  ids.insert(ids.end(), own.begin(), own.end());
  if (word.size() > kShortBytes || own.size() > kShortIds) return;
  const Key key = key_of(word.data(), word.size(), word.size());
  Cache::Short& entry = cache.short_words[place_of(key, kShortBits)];
  entry.low = key.low;
  entry.high = key.high | std::uint64_t{own.size()} << 56;
  std::copy(own.begin(), own.end(), entry.ids.begin());
}

void ByteBpe::add(std::string_view word, Cache& cache, std::vector<std::int32_t>& ids) const {
  if (word.size() > kLongBytes) return add_new(word, cache, ids);
  Cache::Long& entry = cache.long_words[hash_bytes(word) >> (64 - kLongBits)];
  if (entry.word != word) {
    const std::size_t before = ids.size();
    add_new(word, cache, ids);
    entry.word = word;
    entry.ids.assign(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end());
    return;
  }
  ids.insert(ids.end(), entry.ids.begin(), entry.ids.end());
}

void ByteBpe::encode(const WordCutter& cutter, std::string_view text, std::vector<std::int32_t>& ids) const {
  Lease lease(*this);
  Cache& cache = lease.cache();
  std::array<std::int32_t, 1024> buffer;
  std::size_t filled = 0;
  const auto flush = [&] {
    ids.insert(ids.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(filled));
    filled = 0;
  };
  const char* end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const char* stop = cutter.next(at, end);
    const auto size = static_cast<std::size_t>(stop - at);
    if (size <= kShortBytes) [[likely]] {
      const Key key = key_of(at, size, static_cast<std::size_t>(end - at));
      const Cache::Short& entry = cache.short_words[place_of(key, kShortBits)];
      if (entry.low == key.low && (entry.high & ~kCountMask) == key.high) [[likely]] {
        std::memcpy(buffer.data() + filled, entry.ids.data(), sizeof entry.ids);
        filled += (entry.high & kCountMask) >> 56;
        if (filled + kShortIds > buffer.size()) flush();
        at = stop;
        continue;
      }
    }
    flush();
    add({at, size}, cache, ids);
    at = stop;
  }
  flush();
}

void ByteBpe::encode(const std::vector<std::string_view>& words, std::vector<std::int32_t>& ids) const {
  Lease lease(*this);
  Cache& cache = lease.cache();
  for (const std::string_view word : words) {
    if (word.size() <= kShortBytes) {
      const Key key = key_of(word.data(), word.size(), word.size());
      const Cache::Short& entry = cache.short_words[place_of(key, kShortBits)];
      if (entry.low == key.low && (entry.high & ~kCountMask) == key.high) {
        ids.insert(ids.end(), entry.ids.begin(),
                   entry.ids.begin() + static_cast<std::ptrdiff_t>((entry.high & kCountMask) >> 56));
        continue;
      }
    }
    add(word, cache, ids);
  }
}

}  // namespace colonnade::data
