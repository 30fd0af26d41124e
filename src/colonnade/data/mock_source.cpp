// See mock_source.h.
#include "colonnade/data/mock_source.h"

#include "colonnade/base/error.h"
#include "colonnade/data/numpy_random.h"

namespace colonnade::data {

MockSource::MockSource(std::int64_t vocab_size, std::int64_t eod)
    : vocab_size_(vocab_size), eod_(eod), lengths_(100000) {
  if (vocab_size < 1)
    throw ConfigError(
        fmt::format("--mock-data: needs a vocabulary; got {} ids; give --vocab-size", vocab_size));
  Pcg64 random(0);
  for (std::int32_t& length : lengths_) length = random.integers(1, 4096);
}

void MockSource::tokens(std::int64_t sequence, std::int64_t offset, std::span<std::int64_t> out) const {
  COL_CHECK(sequence >= 0 && sequence < num_sequences() && offset >= 0 &&
                static_cast<std::int64_t>(out.size()) <= length(sequence) - offset,
            "mock data: tokens must lie in a sequence; got {} tokens from {} of sequence {}", out.size(),
            offset, sequence);
  const std::int64_t last = length(sequence) - 1;
  for (std::int64_t& token : out) {
    token = offset == last ? eod_ : (offset + 1) % vocab_size_;
    ++offset;
  }
}

}  // namespace colonnade::data
