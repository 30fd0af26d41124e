// See inspect.h.
#include "colonnade/data/indexed/inspect.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <span>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "colonnade/base/error.h"
#include "colonnade/data/indexed/indexed_dataset.h"

namespace colonnade::data {
namespace {

constexpr std::int64_t kShort = std::int64_t{1} << 16;
constexpr std::int64_t kChunk = std::int64_t{1} << 20;  // tokens read at a time

struct Record {
  std::uint64_t hash = 0;
  std::int64_t document = 0;
};

/// Documents grouped by the hash of their tokens. Hash buckets that exceed the memory go to unnamed temporary
/// files.
class HashBuckets {
 public:
  HashBuckets(std::int64_t documents, std::int64_t memory)
      : buckets_(static_cast<std::size_t>(
            std::clamp<std::int64_t>(documents * std::int64_t{sizeof(Record)} / memory + 1, 1, 256))) {}

  void add(const Record& record) {
    Bucket& bucket = buckets_[record.hash % buckets_.size()];
    bucket.records.push_back(record);
    if (buckets_.size() > 1 && bucket.records.size() == kBuffered) write(bucket);
  }

  /// Visits each group of records with equal hashes in document order, bucket by bucket.
  void for_each_group(const std::function<void(std::span<const Record>)>& visit) {
    for (Bucket& bucket : buckets_) {
      read(bucket);
      std::ranges::sort(bucket.records, [](const Record& a, const Record& b) {
        return a.hash != b.hash ? a.hash < b.hash : a.document < b.document;
      });
      const std::span<const Record> all(bucket.records);
      for (std::size_t at = 0, end = 0; at < all.size(); at = end) {
        for (end = at + 1; end < all.size() && all[end].hash == all[at].hash;) ++end;
        if (end > at + 1) visit(all.subspan(at, end - at));
      }
      bucket = {};
    }
  }

 private:
  static constexpr std::size_t kBuffered = 1 << 14;
  struct Close {
    void operator()(std::FILE* file) const { (void)std::fclose(file); }
  };
  struct Bucket {
    std::vector<Record> records;
    std::unique_ptr<std::FILE, Close> file;
    std::size_t written = 0;
  };

  [[noreturn]] static void fail() {
    throw Error(
        fmt::format("data inspect: temporary files must be writable; got {}; set TMPDIR or free space",
                    std::strerror(errno)));
  }
  static void write(Bucket& bucket) {
    if (bucket.file == nullptr) bucket.file.reset(std::tmpfile());
    if (bucket.file == nullptr || std::fwrite(bucket.records.data(), sizeof(Record), bucket.records.size(),
                                              bucket.file.get()) != bucket.records.size())
      fail();
    bucket.written += bucket.records.size();
    bucket.records.clear();
  }
  static void read(Bucket& bucket) {
    if (bucket.file == nullptr) return;
    write(bucket);
    bucket.records.resize(bucket.written);
    std::rewind(bucket.file.get());
    if (std::fread(bucket.records.data(), sizeof(Record), bucket.written, bucket.file.get()) !=
        bucket.written)
      fail();
  }

  std::vector<Bucket> buckets_;
};

class TokenScanner {
 public:
  TokenScanner(const TokenSource& source, const TokenChecks& checks)
      : source_(source), checks_(checks), hashes_(source.num_documents(), checks.memory) {}

  TokenFacts scan() {
    for (std::int64_t document = 0; document < source_.num_documents(); ++document) {
      std::uint64_t hash = 0;
      std::int64_t last = -1;
      const std::int64_t tokens = scan_document(document, hash, last);
      if (tokens == 0) continue;
      hashes_.add({hash, document});
      if (checks_.eod < 0 || last == checks_.eod) continue;
      if (facts_.without_eod++ == 0) facts_.first_without_eod = document;
    }
    hashes_.for_each_group([this](std::span<const Record> group) { compare(group); });
    std::ranges::sort(facts_.duplicate_pairs, {}, &std::pair<std::int64_t, std::int64_t>::second);
    return std::move(facts_);
  }

 private:
  template <typename Visit>
  void for_each_chunk(std::int64_t document, Visit visit) {
    const std::int64_t end = source_.document_start(document + 1);
    for (std::int64_t sequence = source_.document_start(document); sequence < end; ++sequence) {
      const std::int64_t length = source_.length(sequence);
      for (std::int64_t at = 0; at < length; at += kChunk) {
        buffer_.resize(static_cast<std::size_t>(std::min(kChunk, length - at)));
        source_.tokens(sequence, at, buffer_);
        forget(std::ssize(buffer_));
        visit(std::span<const std::int64_t>(buffer_));
      }
    }
  }

  /// Returns the number of tokens of the document, their chained hash and the last token.
  std::int64_t scan_document(std::int64_t document, std::uint64_t& hash, std::int64_t& last) {
    std::int64_t count = 0;
    for_each_chunk(document, [&](std::span<const std::int64_t> tokens) {
      hash = XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), hash + tokens.size());
      count += std::ssize(tokens);
      last = tokens.back() & 0xffffffff;
      for (const std::int64_t token : tokens) {
        const std::int64_t id = token & 0xffffffff;  // chat data store flags in the high bits
        facts_.max_id = std::max(facts_.max_id, id);
        if (checks_.vocab_size == 0 || id < checks_.vocab_size) continue;
        if (facts_.out_of_vocabulary++ == 0) facts_.first_out_of_vocabulary = document;
      }
    });
    return count;
  }

  [[nodiscard]] bool equal(std::int64_t a, std::int64_t b) {
    const std::int64_t first = source_.document_start(a), other = source_.document_start(b);
    const std::int64_t count = source_.document_start(a + 1) - first;
    if (source_.document_start(b + 1) - other != count) return false;
    std::vector<std::int64_t> mine, theirs;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t length = source_.length(first + i);
      if (source_.length(other + i) != length) return false;
      for (std::int64_t at = 0; at < length; at += kChunk) {
        mine.resize(static_cast<std::size_t>(std::min(kChunk, length - at)));
        theirs.resize(mine.size());
        source_.tokens(first + i, at, mine);
        source_.tokens(other + i, at, theirs);
        forget(2 * std::ssize(mine));
        if (mine != theirs) return false;
      }
    }
    return true;
  }

  void compare(std::span<const Record> group) {
    constexpr std::size_t kShown = 10;
    for (std::size_t i = 1; i < group.size(); ++i) {
      const std::int64_t first = group[0].document, duplicate = group[i].document;
      if (!equal(first, duplicate)) continue;
      ++facts_.duplicates;
      for (std::int64_t s = source_.document_start(duplicate); s < source_.document_start(duplicate + 1); ++s)
        facts_.duplicate_tokens += source_.length(s);
      if (i <= kShown) facts_.duplicate_pairs.emplace_back(first, duplicate);
    }
    std::ranges::sort(facts_.duplicate_pairs, {}, &std::pair<std::int64_t, std::int64_t>::second);
    if (facts_.duplicate_pairs.size() > kShown) facts_.duplicate_pairs.resize(kShown);
  }

  /// Releases the pages of a mapped file now and then, so that they do not fill the memory.
  void forget(std::int64_t tokens) {
    constexpr std::int64_t kOften = std::int64_t{1} << 24;
    if ((read_ += tokens) < kOften) return;
    read_ = 0;
    if (const auto* mapped = dynamic_cast<const IndexedDataset*>(&source_)) mapped->forget_pages();
  }

  const TokenSource& source_;
  TokenChecks checks_;
  HashBuckets hashes_;
  TokenFacts facts_;
  std::vector<std::int64_t> buffer_;
  std::int64_t read_ = 0;
};

}  // namespace

void LengthHistogram::add(std::int64_t length) {
  ++count_;
  if (length >= kShort) {
    ++long_[length];
    return;
  }
  if (std::ssize(short_) <= length) short_.resize(static_cast<std::size_t>(length) + 1);
  ++short_[static_cast<std::size_t>(length)];
}

std::int64_t LengthHistogram::between(std::int64_t from, std::int64_t to) const {
  std::int64_t count = 0;
  for (std::int64_t i = from; i <= std::min(to, std::ssize(short_) - 1); ++i)
    count += short_[static_cast<std::size_t>(i)];
  return count;
}

std::int64_t LengthHistogram::longer_than(std::int64_t length) const {
  std::int64_t count = between(length + 1, kShort);
  for (auto at = long_.upper_bound(length); at != long_.end(); ++at) count += at->second;
  return count;
}

std::int64_t LengthHistogram::quantile(double share) const {
  const auto wanted =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(share * static_cast<double>(count_))));
  std::int64_t seen = 0;
  for (std::size_t i = 0; i < short_.size(); ++i)
    if ((seen += short_[i]) >= wanted) return static_cast<std::int64_t>(i);
  for (const auto& [length, number] : long_)
    if ((seen += number) >= wanted) return length;
  return 0;
}

LengthHistogram document_lengths(const TokenSource& source) {
  LengthHistogram lengths;
  for (std::int64_t document = 0; document < source.num_documents(); ++document) {
    std::int64_t tokens = 0;
    for (std::int64_t s = source.document_start(document); s < source.document_start(document + 1); ++s)
      tokens += source.length(s);
    lengths.add(tokens);
  }
  return lengths;
}

TokenFacts scan_tokens(const TokenSource& source, const TokenChecks& checks) {
  return TokenScanner(source, checks).scan();
}

}  // namespace colonnade::data
