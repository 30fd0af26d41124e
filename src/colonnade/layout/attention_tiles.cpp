// See attention_tiles.h.
#include "colonnade/layout/attention_tiles.h"

#include <algorithm>

#include "colonnade/base/error.h"

namespace colonnade::layout {
namespace {

/// Bounds of the queries of a window's mask: few kernel calls, and small masks.
constexpr std::int64_t kMinWindowQueries = 128, kMaxWindowQueries = 1024;

std::int64_t tokens_of(const std::vector<TokenSpan>& spans) {
  std::int64_t tokens = 0;
  for (const TokenSpan& span : spans) tokens += span.length;
  return tokens;
}

std::int64_t end_of(const TokenSpan& span) { return span.begin + span.length; }

TokenSpan intersection(const TokenSpan& a, const TokenSpan& b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max<std::int64_t>(std::min(end_of(a), end_of(b)) - begin, 0)};
}

/// A chunk and its offset in a local tensor.
struct LocalChunk {
  TokenSpan span;
  std::int64_t offset = 0;
  [[nodiscard]] std::int64_t index_of(std::int64_t position) const { return offset + position - span.begin; }
};

std::vector<LocalChunk> local_chunks(const std::vector<TokenSpan>& spans, std::int64_t first) {
  std::vector<LocalChunk> chunks;
  for (const TokenSpan& span : spans) {
    chunks.push_back({span, first});
    first += span.length;
  }
  return chunks;
}

class TileList {
 public:
  TileList(const AttentionBlock& block, const AttentionBounds& bounds)
      : queries_(local_chunks(block.query_chunks, block.first_query)),
        keys_(local_chunks(block.key_chunks, block.first_key)),
        window_(bounds.window) {}

  /// Tiles of the tokens of `document` in rows [row, row + rows).
  void add_document(const TokenSpan& document, std::int64_t row, std::int64_t rows) {
    for (const LocalChunk& queries : queries_)
      for (const LocalChunk& keys : keys_) {
        const TokenSpan of_queries = intersection(queries.span, document);
        const TokenSpan of_keys = intersection(keys.span, document);
        if (of_queries.length == 0 || of_keys.length == 0 || of_keys.begin > of_queries.begin) continue;
        add_pair({row,
                  rows,
                  queries.index_of(of_queries.begin),
                  keys.index_of(of_keys.begin),
                  {of_queries},
                  {of_keys},
                  of_keys == of_queries ? AttentionTile::Mask::kCausal : AttentionTile::Mask::kNone});
      }
  }
  [[nodiscard]] std::vector<AttentionTile> take() { return std::move(tiles_); }

 private:
  /// A tile without a window, divided if the window masks some of it.
  void add_pair(AttentionTile tile) {
    const TokenSpan queries = tile.queries[0], keys = tile.keys[0];
    if (window_ == 0 || end_of(queries) - 1 - keys.begin <= window_) return tiles_.push_back(std::move(tile));
    const std::int64_t step = std::clamp(window_, kMinWindowQueries, kMaxWindowQueries);
    for (std::int64_t at = 0; at < queries.length; at += step) {
      const TokenSpan part{queries.begin + at, std::min(step, queries.length - at)};
      const std::int64_t begin = std::max(keys.begin, part.begin - window_);
      const std::int64_t end = std::min(end_of(keys), end_of(part));
      if (begin >= end) continue;
      const bool all_visible = end <= part.begin && end_of(part) - 1 - begin <= window_;
      tiles_.push_back({tile.first_row,
                        tile.rows,
                        tile.first_query + at,
                        tile.first_key + begin - keys.begin,
                        {part},
                        {{begin, end - begin}},
                        all_visible ? AttentionTile::Mask::kNone : AttentionTile::Mask::kWindow});
    }
  }

  std::vector<LocalChunk> queries_, keys_;
  std::int64_t window_;
  std::vector<AttentionTile> tiles_;
};

}  // namespace

std::int64_t Documents::longest() const {
  std::int64_t longest = 0;
  for (std::size_t i = 1; i < cu_seqlens.size(); ++i)
    longest = std::max(longest, cu_seqlens[i] - cu_seqlens[i - 1]);
  return longest;
}

void check_documents(const Documents& documents, std::int64_t rows, std::int64_t length) {
  const std::vector<std::int64_t>& bounds = documents.cu_seqlens;
  if (bounds.empty()) return;
  const auto describes = [&] {
    if (bounds.front() != 0 || bounds.back() != rows * length) return false;
    std::int64_t row_starts = 0;
    for (std::size_t i = 1; i < bounds.size(); ++i) {
      if (bounds[i] <= bounds[i - 1]) return false;
      row_starts += bounds[i] % length == 0 ? 1 : 0;
    }
    return row_starts == rows;
  };
  COL_CHECK(
      describes(),
      "cu_seqlens must ascend from 0 to {} tokens and hold the start of each row of {}; got {} bounds, the "
      "last one {}",
      rows * length, length, bounds.size(), bounds.back());
}

std::int64_t AttentionTile::num_queries() const { return tokens_of(queries); }
std::int64_t AttentionTile::num_keys() const { return tokens_of(keys); }

std::vector<AttentionTile> attention_tiles(const AttentionBlock& block, const AttentionBounds& bounds) {
  const std::vector<std::int64_t>& starts = bounds.documents.cu_seqlens;
  check_documents(bounds.documents, bounds.rows, bounds.length);
  if (starts.empty() && bounds.window == 0)
    return {{0, bounds.rows, block.first_query, block.first_key, block.query_chunks, block.key_chunks,
             block.causal ? AttentionTile::Mask::kCausal : AttentionTile::Mask::kNone}};
  TileList tiles(block, bounds);
  if (starts.empty()) tiles.add_document({0, bounds.length}, 0, bounds.rows);
  for (std::size_t i = 1; i < starts.size(); ++i)
    tiles.add_document({starts[i - 1] % bounds.length, starts[i] - starts[i - 1]},
                       starts[i - 1] / bounds.length, 1);
  return tiles.take();
}

AttentionBlock full_block(std::int64_t length) { return {0, 0, length, {{0, length}}, {{0, length}}, true}; }

}  // namespace colonnade::layout
