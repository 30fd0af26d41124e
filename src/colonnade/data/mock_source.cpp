// See mock_source.h.
#include "colonnade/data/mock_source.h"

#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/data/numpy_random.h"

namespace colonnade::data {

MockSource::MockSource(std::int64_t vocab_size, std::int64_t eod)
    : vocab_size_(vocab_size), eod_(eod), lengths_(100000) {
  if (vocab_size < 1)
    throw ConfigError(
        fmt::format("--mock-data requires a vocabulary; got {} ids; set --vocab-size", vocab_size));
  Pcg64 random(0);
  for (std::int32_t& length : lengths_) length = random.integers(1, 4096);
}

void MockSource::tokens(std::int64_t sequence, std::int64_t offset, std::span<std::int64_t> out) const {
  COL_CHECK(sequence >= 0 && sequence < num_sequences() && offset >= 0 &&
                static_cast<std::int64_t>(out.size()) <= length(sequence) - offset,
            "mock data: tokens must lie in one sequence; got {} tokens at offset {} of sequence {}",
            out.size(), offset, sequence);
  const std::int64_t last = length(sequence) - 1;
  for (std::int64_t& token : out) {
    token = offset == last ? eod_ : (offset + 1) % vocab_size_;
    ++offset;
  }
}

namespace {

constexpr std::int64_t kDocuments = 10000;
constexpr std::int64_t kSentenceTokens = 64;

}  // namespace

MockSentences::MockSentences(std::int64_t first, std::int64_t ids) : first_(first), ids_(ids), starts_{0} {
  const MockSource documents(ids, 0);
  for (std::int64_t document = 0; document < kDocuments; ++document) {
    for (std::int64_t left = documents.length(document); left > 0; left -= kSentenceTokens)
      lengths_.push_back(static_cast<std::int32_t>(std::min(left, kSentenceTokens)));
    starts_.push_back(static_cast<std::int64_t>(lengths_.size()));
  }
}

void MockSentences::tokens(std::int64_t sequence, std::int64_t offset, std::span<std::int64_t> out) const {
  COL_CHECK(sequence >= 0 && sequence < num_sequences() && offset >= 0 &&
                static_cast<std::int64_t>(out.size()) <= length(sequence) - offset,
            "mock data: tokens must lie in one sentence; got {} tokens at offset {} of sentence {}",
            out.size(), offset, sequence);
  const std::int64_t document = *(std::ranges::upper_bound(starts_, sequence) - 1);
  offset += (sequence - document) * kSentenceTokens;
  for (std::int64_t& token : out) token = first_ + offset++ % ids_;
}

}  // namespace colonnade::data
