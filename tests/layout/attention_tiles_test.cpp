// Tiles against the definition: every visible pair of a query and a key exactly once, no other pair.
#include "colonnade/layout/attention_tiles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <tuple>

#include "colonnade/base/error.h"

namespace colonnade::layout {
namespace {

using Pair = std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // row, query, key, as positions

std::vector<std::int64_t> flat(const std::vector<TokenSpan>& spans) {
  std::vector<std::int64_t> positions;
  for (const TokenSpan& span : spans)
    for (std::int64_t i = 0; i < span.length; ++i) positions.push_back(span.begin + i);
  return positions;
}

/// Counts the pairs that tiles attend to, and checks their local indices against the block's order.
void count_pairs(const AttentionBlock& block, const AttentionBounds& bounds, std::map<Pair, int>& pairs) {
  const std::vector<std::int64_t> queries = flat(block.query_chunks), keys = flat(block.key_chunks);
  for (const AttentionTile& tile : attention_tiles(block, bounds)) {
    const std::vector<std::int64_t> of_queries = flat(tile.queries), of_keys = flat(tile.keys);
    ASSERT_EQ(std::ssize(of_queries), tile.num_queries());
    ASSERT_EQ(std::ssize(of_keys), tile.num_keys());
    if (tile.mask == AttentionTile::Mask::kWindow) {
      EXPECT_LE(tile.num_keys(), tile.num_queries() + bounds.window);
    }
    for (std::size_t i = 0; i < of_queries.size(); ++i)
      for (std::size_t j = 0; j < of_keys.size(); ++j) {
        const std::int64_t query = of_queries[i], key = of_keys[j];
        ASSERT_EQ(queries.at(static_cast<std::size_t>(tile.first_query - block.first_query) + i), query);
        ASSERT_EQ(keys.at(static_cast<std::size_t>(tile.first_key - block.first_key) + j), key);
        const bool visible =
            tile.mask == AttentionTile::Mask::kNone ||
            (tile.mask == AttentionTile::Mask::kCausal && j <= i) ||
            (tile.mask == AttentionTile::Mask::kWindow && key <= query && key >= query - bounds.window);
        for (std::int64_t row = tile.first_row; visible && row < tile.first_row + tile.rows; ++row)
          ++pairs[{row, query, key}];
      }
  }
}

bool sees(const AttentionBounds& bounds, const std::vector<int>& document, std::int64_t row,
          std::int64_t query, std::int64_t key) {
  const auto of = [&](std::int64_t at) {
    return document[static_cast<std::size_t>(row * bounds.length + at)];
  };
  return key <= query && of(query) == of(key) && (bounds.window == 0 || key >= query - bounds.window);
}

/// All blocks of all ranks together; ranks of 1 have the full sequence.
void expect_every_pair_once(const AttentionBounds& bounds, int ranks, bool gathered) {
  std::map<Pair, int> pairs;
  for (int rank = 0; rank < ranks; ++rank) {
    count_pairs(attention_block(bounds.length, rank, rank, ranks), bounds, pairs);
    if (gathered)
      for (const AttentionBlock& block : remote_attention_blocks(bounds.length, rank, ranks))
        count_pairs(block, bounds, pairs);
    for (int owner = 0; owner < ranks && !gathered; ++owner)
      if (owner != rank) count_pairs(attention_block(bounds.length, rank, owner, ranks), bounds, pairs);
  }
  std::vector<int> document(static_cast<std::size_t>(bounds.rows * bounds.length));
  if (bounds.documents.any())
    for (std::size_t i = 1; i < bounds.documents.cu_seqlens.size(); ++i)
      for (std::int64_t at = bounds.documents.cu_seqlens[i - 1]; at < bounds.documents.cu_seqlens[i]; ++at)
        document[static_cast<std::size_t>(at)] = static_cast<int>(i);
  for (std::int64_t row = 0; row < bounds.rows; ++row)
    for (std::int64_t query = 0; query < bounds.length; ++query)
      for (std::int64_t key = 0; key < bounds.length; ++key)
        ASSERT_EQ((pairs[{row, query, key}]), sees(bounds, document, row, query, key) ? 1 : 0)
            << "row " << row << " query " << query << " key " << key << " window " << bounds.window
            << " ranks " << ranks;
}

TEST(AttentionTiles, CoverEveryVisiblePairOnce) {
  std::mt19937 random(11);
  for (int round = 0; round < 30; ++round) {
    AttentionBounds bounds{.rows = 2, .length = 32};
    bounds.documents.cu_seqlens = {0};
    for (std::int64_t at = 1; at < 64; ++at)
      if (at % 32 == 0 || random() % 6 == 0) bounds.documents.cu_seqlens.push_back(at);
    bounds.documents.cu_seqlens.push_back(64);
    for (const std::int64_t window : {0, 1, 5, 31})
      for (const int ranks : {1, 2, 4}) {
        bounds.window = window;
        expect_every_pair_once(bounds, ranks, round % 2 == 0);
      }
  }
}

TEST(AttentionTiles, DivideTheQueriesOfAWindow) {
  const AttentionBounds bounds{.rows = 1, .length = 700, .window = 100};
  expect_every_pair_once(bounds, 1, false);
  for (const AttentionTile& tile : attention_tiles(full_block(700), bounds))
    EXPECT_LE(tile.num_queries(), 128);
  EXPECT_EQ(attention_tiles(full_block(700), {.rows = 1, .length = 700, .window = 699}).size(), 1U)
      << "a window that masks nothing";
}

TEST(AttentionTiles, OfFullSequencesHaveDisjointQueriesAndNoMaskWithoutAWindow) {
  AttentionBounds bounds{.rows = 1, .length = 4096};
  bounds.documents.cu_seqlens = {0, 300, 301, 1000, 4096};
  const std::vector<AttentionTile> tiles = attention_tiles(full_block(4096), bounds);
  ASSERT_EQ(tiles.size(), 4U);
  std::int64_t next = 0;
  for (const AttentionTile& tile : tiles) {
    EXPECT_EQ(tile.mask, AttentionTile::Mask::kCausal);
    EXPECT_EQ(tile.first_query, next);
    next += tile.num_queries();
  }
  EXPECT_EQ(next, 4096);
  EXPECT_EQ(bounds.documents.longest(), 3096);
}

TEST(AttentionTiles, RejectBoundsThatDoNotMatchTheTokens) {
  for (const std::vector<std::int64_t>& bounds :
       {std::vector<std::int64_t>{1, 8}, {0, 7}, {0, 9}, {0, 5, 5, 8}, {0, 6, 4, 8}, {0, 3, 8}, {0}})
    try {
      check_documents({bounds}, 2, 4);
      FAIL() << "must throw for " << testing::PrintToString(bounds);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("cu_seqlens must ascend from 0 to 8 tokens"));
    }
  check_documents({{0, 3, 4, 8}}, 2, 4);
  check_documents({}, 2, 4);
}

}  // namespace
}  // namespace colonnade::layout
