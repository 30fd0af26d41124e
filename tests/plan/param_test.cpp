// Every element of every parameter has exactly the owners its placement says.
#include "colonnade/plan/param.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <set>

#include "colonnade/base/error.h"

namespace colonnade::plan {
namespace {

ParamSpec cut_spec(std::vector<Piece> pieces, std::int64_t other = 3) {
  std::int64_t rows = 0;
  for (const Piece& piece : pieces) rows += piece.size;
  return {.name = "w", .shape = {rows, other}, .split_dim = 0, .pieces = std::move(pieces)};
}

/// A piece that `size` ranks can cut, in one of the three ways.
Piece any_piece(int size) {
  const auto unit = *rc::gen::inRange<std::int64_t>(1, 5);
  switch (*rc::gen::inRange(0, 3)) {
    case 0:
      return {.role = "p", .size = unit * size * *rc::gen::inRange<std::int64_t>(1, 4), .unit = unit};
    case 1: {  // fewer units than ranks
      std::vector<std::int64_t> divisors;
      for (int d = 1; d <= size; ++d) {
        if (size % d == 0) divisors.push_back(d);
      }
      return {.role = "p", .size = unit * *rc::gen::elementOf(divisors), .unit = unit};
    }
    default:
      return {.role = "p",
              .size = unit * *rc::gen::inRange<std::int64_t>(1, 50),
              .unit = unit,
              .pad_to = *rc::gen::inRange<std::int64_t>(1, 20)};
  }
}

void expect_sound(const ParamSpec& spec, int size) {
  const std::int64_t rows = spec.shape[0];
  std::vector<int> owned(static_cast<std::size_t>(rows), 0), held(owned), claimed(owned);
  for (int coord = 0; coord < size; ++coord) {
    const Shard part = shard(spec, coord, size);
    RC_ASSERT(part.shape == shard(spec, 0, size).shape);
    std::int64_t end = 0;  // runs lie in local order without overlap
    for (const Run& run : part.runs) {
      RC_ASSERT(run.length > 0 && run.local >= end && run.global >= 0 && run.global + run.length <= rows);
      RC_ASSERT(run.holders == 1 || part.replicated_runs);
      end = run.local + run.length;
      for (std::int64_t i = run.global; i < run.global + run.length; ++i) {
        owned[static_cast<std::size_t>(i)] += run.owner ? 1 : 0;
        ++held[static_cast<std::size_t>(i)];
        claimed[static_cast<std::size_t>(i)] = run.holders;
      }
    }
    RC_ASSERT(end <= part.shape[0]);
  }
  for (std::size_t i = 0; i < owned.size(); ++i) {
    RC_ASSERT(owned[i] == 1);
    RC_ASSERT(held[i] == claimed[i]);
  }
}

TEST(Shard, EveryElementHasExactlyOneOwnerAndTheStatedHolders) {
  EXPECT_TRUE(rc::check("owners", [] {
    const int size = *rc::gen::inRange(1, 17);
    std::vector<Piece> pieces;
    for (int i = *rc::gen::inRange(1, 4); i > 0; --i) pieces.push_back(any_piece(size));
    expect_sound(cut_spec(std::move(pieces)), size);
  }));
}

TEST(Shard, PaddingIsTheNextMultipleThatTheAxisDivides) {
  EXPECT_TRUE(rc::check("padding", [] {
    const int size = *rc::gen::inRange(1, 9);
    const auto pad = *rc::gen::inRange<std::int64_t>(1, 30);
    const auto rows = *rc::gen::inRange<std::int64_t>(1, 300);
    const ParamSpec spec = cut_spec({{.size = rows, .pad_to = pad}});
    const std::int64_t total = shard(spec, 0, size).shape[0] * size;
    RC_ASSERT(total >= rows && total % pad == 0 && total % size == 0);
    for (std::int64_t smaller = rows; smaller < total; ++smaller)
      RC_ASSERT(smaller % pad != 0 || smaller % size != 0);
  }));
}

TEST(Shard, FusedQueryKeyValueOfFourRanks) {
  // 8 query heads of 4, 2 groups: each key and value head lies on two neighbouring ranks.
  const ParamSpec spec = cut_spec({{.role = "q", .size = 32, .unit = 4},
                                   {.role = "k", .size = 8, .unit = 4},
                                   {.role = "v", .size = 8, .unit = 4}});
  const Shard part = shard(spec, 3, 4);
  EXPECT_EQ(part.shape, (std::vector<std::int64_t>{16, 3}));
  ASSERT_EQ(part.runs.size(), 3U);
  EXPECT_EQ(part.runs[0].global, 24);
  EXPECT_EQ(part.runs[0].length, 8);
  EXPECT_EQ(part.runs[1].global, 36);
  EXPECT_EQ(part.runs[1].local, 8);
  EXPECT_EQ(part.runs[1].holders, 2);
  EXPECT_FALSE(part.runs[1].owner);
  EXPECT_EQ(part.runs[2].global, 44);
  EXPECT_TRUE(shard(spec, 2, 4).runs[1].owner);
}

TEST(Shard, FillingMayLeaveARankWithNothing) {
  const ParamSpec spec = cut_spec({{.size = 5, .pad_to = 8}});
  EXPECT_EQ(shard(spec, 0, 4).shape[0], 2);
  EXPECT_EQ(shard(spec, 2, 4).runs.at(0).length, 1);
  EXPECT_TRUE(shard(spec, 3, 4).runs.empty());
  EXPECT_EQ(shard(spec, 3, 4).shape[0], 2);
}

TEST(Shard, UncutIsHeldByAllAndOwnedByTheFirst) {
  const ParamSpec spec{.name = "norm", .shape = {7}};
  const Shard part = shard(spec, 1, 4);
  EXPECT_EQ(part.shape, spec.shape);
  ASSERT_EQ(part.runs.size(), 1U);
  EXPECT_EQ(part.runs[0].length, 7);
  EXPECT_EQ(part.runs[0].holders, 4);
  EXPECT_FALSE(part.runs[0].owner);
  EXPECT_TRUE(shard(spec, 0, 4).runs[0].owner);
  const Shard scalar = shard({.name = "scale", .shape = {}}, 0, 1);
  EXPECT_EQ(scalar.numel(), 1);
  EXPECT_EQ(scalar.runs.at(0).length, 1);
  EXPECT_FALSE(scalar.replicated_runs);
}

TEST(Shard, RefusesWhatBreaksUnits) {
  EXPECT_THROW(shard(cut_spec({{.size = 12, .unit = 4}}), 0, 2), ConfigError);  // 3 heads over 2 ranks
  EXPECT_THROW(shard(cut_spec({{.size = 10, .unit = 4}}), 0, 1), Error);        // not whole units
  EXPECT_THROW(shard(cut_spec({{.size = 8}}), 2, 2), Error);
}

}  // namespace
}  // namespace colonnade::plan
