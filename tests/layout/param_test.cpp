// Every element of every parameter has one owner and the stated number of holders.
#include "colonnade/layout/param.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "colonnade/base/error.h"

namespace colonnade::layout {
namespace {

ParamSpec sharded_spec(std::vector<DimSegment> pieces, std::int64_t other = 3) {
  std::int64_t rows = 0;
  for (const DimSegment& piece : pieces) rows += piece.size;
  return {.name = "w", .shape = {rows, other}, .sharded_dims = {{.dim = 0, .segments = std::move(pieces)}}};
}

Position tp(int coord, int size) { return Position::on(Axis::kTp, coord, size); }

/// Random segment that `size` ranks can shard in one of the three ways.
DimSegment any_piece(int size) {
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

/// All positions on `axes` with `sizes[i]` ranks on axis i.
std::vector<Position> positions(const std::vector<Axis>& axes, const std::vector<int>& sizes) {
  std::vector<Position> all{Position()};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    std::vector<Position> more;
    for (const Position& one : all)
      for (int coord = 0; coord < sizes[i]; ++coord)
        more.push_back(Position(one).set(axes[i], coord, sizes[i]));
    all = std::move(more);
  }
  return all;
}

/// Counts per element of the global tensor, by flat offset.
struct Census {
  explicit Census(const ParamSpec& spec)
      : owners(static_cast<std::size_t>(spec.numel()), 0), held(owners), claimed(owners) {}
  std::vector<int> owners, held, claimed;
};

/// Adds one rank; its boxes are disjoint in its tensor, and owned() covers the owned ones.
void count(const ParamSpec& spec, const Shard& shard, Census& census) {
  std::vector<int> local(static_cast<std::size_t>(shard.numel()), 0);
  std::vector<int> mine(local);
  for (const ShardBox& part : shard.boxes)
    for_each_span(spec, shard, part, [&](const ElementSpan& s) {
      RC_ASSERT(s.length > 0 && s.local + s.length <= shard.numel() && s.global + s.length <= spec.numel());
      for (std::int64_t i = 0; i < s.length; ++i) {
        ++local.at(static_cast<std::size_t>(s.local + i));
        mine.at(static_cast<std::size_t>(s.local + i)) += part.owner ? 1 : 0;
        census.owners.at(static_cast<std::size_t>(s.global + i)) += part.owner ? 1 : 0;
        ++census.held.at(static_cast<std::size_t>(s.global + i));
        census.claimed.at(static_cast<std::size_t>(s.global + i)) = part.holders;
      }
    });
  RC_ASSERT(std::ranges::all_of(local, [](int times) { return times <= 1; }));
  std::int64_t end = -1;
  for (const LocalSpan& one : owned(spec, shard)) {
    RC_ASSERT(one.begin > end && one.begin < one.end);  // disjoint and not adjacent
    end = one.end;
    for (std::int64_t i = one.begin; i < one.end; ++i) RC_ASSERT(mine.at(static_cast<std::size_t>(i))-- == 1);
  }
  RC_ASSERT(std::ranges::all_of(mine, [](int times) { return times == 0; }));
}

void expect_valid(const ParamSpec& spec, const std::vector<Position>& ranks) {
  Census census(spec);
  const std::vector<std::int64_t> shape = shard(spec, ranks.front()).shape;
  for (const Position& rank : ranks) {
    RC_ASSERT(shard(spec, rank).shape == shape);
    count(spec, shard(spec, rank), census);
  }
  RC_ASSERT(std::ranges::all_of(census.owners, [](int times) { return times == 1; }));
  RC_ASSERT(census.held == census.claimed);
}

TEST(Shard, EveryElementHasExactlyOneOwnerAndTheStatedHolders) {
  EXPECT_TRUE(rc::check("owners", [] {
    const int size = *rc::gen::inRange(1, 17);
    std::vector<DimSegment> pieces;
    for (int i = *rc::gen::inRange(1, 4); i > 0; --i) pieces.push_back(any_piece(size));
    expect_valid(sharded_spec(std::move(pieces)), positions({Axis::kTp}, {size}));
  }));
}

TEST(Shard, ExpertsMayBeShardedOverTwoAxes) {
  EXPECT_TRUE(rc::check("experts", [] {
    const int ep = *rc::gen::inRange(1, 5);
    const int etp = *rc::gen::inRange(1, 5);
    const std::int64_t experts = ep * *rc::gen::inRange<std::int64_t>(1, 4);
    const DimSegment gate = any_piece(etp), up = any_piece(etp);
    ParamSpec spec{
        .name = "experts", .shape = {experts, gate.size + up.size, 3}, .param_group = ParamGroup::kExpert};
    spec.sharded_dims = {{.dim = 0, .axis = Axis::kEp, .segments = {{.size = experts}}}};
    if (*rc::gen::arbitrary<bool>())
      spec.sharded_dims.push_back({.dim = 1, .axis = Axis::kEtp, .segments = {gate, up}});
    expect_valid(spec, positions({Axis::kEp, Axis::kEtp}, {ep, etp}));
  }));
}

TEST(Shard, TheSecondHalfOfTwoExpertsShardedByRows) {
  // 4 experts over 2 ranks, gate and up of 4 rows each over 2 ranks.
  const ParamSpec spec{
      .name = "fc1",
      .shape = {4, 8, 3},
      .sharded_dims = {{.dim = 0, .axis = Axis::kEp, .segments = {{.size = 4}}},
                       {.dim = 1,
                        .axis = Axis::kEtp,
                        .segments = {{.role = "gate", .size = 4}, {.role = "up", .size = 4}}}},
      .param_group = ParamGroup::kExpert};
  const Shard part = shard(spec, Position::on(Axis::kEp, 1, 2).set(Axis::kEtp, 1, 2));
  using Sizes = std::vector<std::int64_t>;
  EXPECT_EQ(part.shape, (Sizes{2, 4, 3}));
  ASSERT_EQ(part.boxes.size(), 2U);
  EXPECT_EQ(part.boxes[0].global, (Sizes{2, 2, 0}));
  EXPECT_EQ(part.boxes[1].global, (Sizes{2, 6, 0}));
  EXPECT_EQ(part.boxes[1].local, (Sizes{0, 2, 0}));
  EXPECT_EQ(part.boxes[1].length, (Sizes{2, 2, 3}));
  const auto all = owned(spec, part);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].end, 24);
  std::vector<ElementSpan> up;
  for_each_span(spec, part, part.boxes[1], [&](const ElementSpan& s) { up.push_back(s); });
  ASSERT_EQ(up.size(), 2U);
  EXPECT_EQ(up[1].local, 18);
  EXPECT_EQ(up[1].global, (3 * 8 + 6) * 3);
  EXPECT_EQ(up[1].length, 6);
}

TEST(Shard, PaddingIsTheNextMultipleThatTheAxisDivides) {
  EXPECT_TRUE(rc::check("padding", [] {
    const int size = *rc::gen::inRange(1, 9);
    const auto pad = *rc::gen::inRange<std::int64_t>(1, 30);
    const auto rows = *rc::gen::inRange<std::int64_t>(1, 300);
    const ParamSpec spec = sharded_spec({{.size = rows, .pad_to = pad}});
    const std::int64_t total = shard(spec, tp(0, size)).shape[0] * size;
    RC_ASSERT(total >= rows && total % pad == 0 && total % size == 0);
    for (std::int64_t smaller = rows; smaller < total; ++smaller)
      RC_ASSERT(smaller % pad != 0 || smaller % size != 0);
  }));
}

TEST(Shard, FusedQueryKeyValueOfFourRanks) {
  // 8 query heads of 4, 2 groups: each key and value head is replicated on two adjacent ranks.
  const ParamSpec spec = sharded_spec({{.role = "q", .size = 32, .unit = 4},
                                       {.role = "k", .size = 8, .unit = 4},
                                       {.role = "v", .size = 8, .unit = 4}});
  const Shard part = shard(spec, tp(3, 4));
  EXPECT_EQ(part.shape, (std::vector<std::int64_t>{16, 3}));
  ASSERT_EQ(part.boxes.size(), 3U);
  EXPECT_EQ(part.boxes[0].global[0], 24);
  EXPECT_EQ(part.boxes[0].length[0], 8);
  EXPECT_EQ(part.boxes[1].global[0], 36);
  EXPECT_EQ(part.boxes[1].local[0], 8);
  EXPECT_EQ(part.boxes[1].holders, 2);
  EXPECT_FALSE(part.boxes[1].owner);
  EXPECT_EQ(part.boxes[2].global[0], 44);
  EXPECT_TRUE(shard(spec, tp(2, 4)).boxes[1].owner);
}

TEST(Shard, PaddingMayLeaveARankEmpty) {
  const ParamSpec spec = sharded_spec({{.size = 5, .pad_to = 8}});
  EXPECT_EQ(shard(spec, tp(0, 4)).shape[0], 2);
  EXPECT_EQ(shard(spec, tp(2, 4)).boxes.at(0).length[0], 1);
  EXPECT_TRUE(shard(spec, tp(3, 4)).boxes.empty());
  EXPECT_EQ(shard(spec, tp(3, 4)).shape[0], 2);
}

TEST(Shard, UnshardedIsHeldByAllAndOwnedByTheFirst) {
  const ParamSpec spec{.name = "norm", .shape = {7}};
  const Shard part = shard(spec, tp(1, 4));
  EXPECT_EQ(part.shape, spec.shape);
  ASSERT_EQ(part.boxes.size(), 1U);
  EXPECT_EQ(part.boxes[0].length[0], 7);
  EXPECT_EQ(part.boxes[0].holders, 4);
  EXPECT_FALSE(part.boxes[0].owner);
  EXPECT_TRUE(shard(spec, tp(0, 4)).boxes[0].owner);
  const Shard scalar = shard({.name = "scale", .shape = {}}, Position());
  EXPECT_EQ(scalar.numel(), 1);
  EXPECT_EQ(scalar.boxes.size(), 1U);
  EXPECT_FALSE(scalar.shared);
}

TEST(Shard, RejectsInvalidSharding) {
  EXPECT_THROW(shard(sharded_spec({{.size = 12, .unit = 4}}), tp(0, 2)),
               ConfigError);                                                      // 3 heads over 2 ranks
  EXPECT_THROW(shard(sharded_spec({{.size = 10, .unit = 4}}), tp(0, 1)), Error);  // no multiple of the unit
  EXPECT_THROW(shard(sharded_spec({{.size = 8}}), tp(2, 2)), Error);
  ParamSpec twice = sharded_spec({{.size = 8}});
  twice.sharded_dims.push_back(twice.sharded_dims.front());
  EXPECT_THROW(shard(twice, Position()), Error);
  twice.sharded_dims.back() = {.dim = 1, .axis = Axis::kEp, .segments = {{.size = 3}}};
  EXPECT_THROW(shard(twice, Position()), Error) << "a dense parameter over an expert axis";
}

}  // namespace
}  // namespace colonnade::layout
