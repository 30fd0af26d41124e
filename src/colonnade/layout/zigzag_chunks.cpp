// See zigzag_chunks.h.
#include "colonnade/layout/zigzag_chunks.h"

#include <algorithm>

#include "colonnade/base/error.h"

namespace colonnade::layout {

std::vector<TokenSpan> context_chunks(std::int64_t length, int rank, int ranks) {
  COL_CHECK(ranks >= 1 && rank >= 0 && rank < ranks,
            "context_chunks must get a rank below the number of ranks; got {} of {}", rank, ranks);
  if (ranks == 1) return {{0, length}};
  const std::int64_t chunks = 2 * std::int64_t{ranks};
  COL_CHECK(length % chunks == 0, "context_chunks must get a sequence that {} chunks divide; got {} tokens",
            chunks, length);
  const std::int64_t size = length / chunks;
  return {{rank * size, size}, {(chunks - 1 - rank) * size, size}};
}

std::vector<TokenSpan> SequenceShard::chunks(std::int64_t length) const {
  const std::int64_t own = length / ranks(), first = own * part, last = first + own;
  std::vector<TokenSpan> kept;
  std::int64_t begin = 0;  // local offset of the chunk
  for (const TokenSpan& chunk : context_chunks(length, context, contexts)) {
    const std::int64_t from = std::max(first, begin), to = std::min(last, begin + chunk.length);
    if (from < to) kept.push_back({chunk.begin + from - begin, to - from});
    begin += chunk.length;
  }
  return kept;
}

}  // namespace colonnade::layout
