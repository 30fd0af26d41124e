// Boxes: flat ranges as boxes, overlap, and the check that every element has one owner.
#include "colonnade/checkpoint/slice.h"

#include <gmock/gmock.h>

#include "checkpoint/fixtures.h"

namespace colonnade::checkpoint {
namespace {

using test::message_of;
using testing::HasSubstr;

TEST(Slice, EveryFlatRangeIsItsBoxesInOrder) {
  for (const Sizes& shape : {Sizes{7}, Sizes{3, 5}, Sizes{2, 3, 4}, Sizes{4, 1, 3}, Sizes{1, 1}, Sizes{}}) {
    const std::int64_t numel = Box{{}, shape}.numel();
    const at::Tensor index = at::arange(numel).reshape(shape);
    for (std::int64_t begin = 0; begin <= numel; ++begin)
      for (std::int64_t end = begin; end <= numel; ++end) {
        std::vector<at::Tensor> parts{at::empty({0}, at::kLong)};
        for (const Box& box : boxes_of_range(shape, begin, end))
          parts.push_back(subview({"", shape, Sizes(shape.size(), 0), index}, box).flatten());
        EXPECT_LE(parts.size(), std::max<std::size_t>(2 * shape.size(), 2));
        EXPECT_TRUE(at::equal(at::cat(parts), at::arange(begin, end)));
      }
  }
  EXPECT_THAT(message_of([] { boxes_of_range({4}, 2, 5); }), HasSubstr("[2, 5)"));
}

TEST(Slice, CoverageReportsMissingDuplicateAndOutsideElements) {
  const Sizes shape{4, 8};
  EXPECT_EQ(coverage_problem(shape, {{{0, 0}, {4, 3}}, {{0, 3}, {4, 5}}}), std::nullopt);
  EXPECT_EQ(coverage_problem(shape, {{{0, 0}, {2, 8}}, {{3, 0}, {1, 8}}}),
            "elements [2:3, 0:8] have no owner");
  EXPECT_EQ(coverage_problem(shape, {{{0, 0}, {3, 8}}, {{2, 4}, {2, 4}}, {{3, 0}, {1, 4}}}),
            "elements [2:3, 4:8] have two owners");
  EXPECT_EQ(coverage_problem(shape, {{{0, 0}, {5, 8}}}), "elements [0:5, 0:8] lie outside [4, 8]");
  EXPECT_EQ(coverage_problem(shape, {{{0, -1}, {4, 9}}}), "elements [0:4, -1:8] lie outside [4, 8]");
  EXPECT_EQ(coverage_problem(shape, {{{0}, {4}}}), "elements [0:4] lie outside [4, 8]");
  EXPECT_EQ(coverage_problem(shape, {}), "elements [0:4, 0:8] have no owner");
}

TEST(Slice, CoverageHandlesScalarsEmptyTensorsAndImpossibleShapes) {
  EXPECT_EQ(coverage_problem({}, {{{}, {}}}), std::nullopt);
  EXPECT_EQ(coverage_problem({}, {}), "elements [] have no owner");
  EXPECT_EQ(coverage_problem({}, {{{}, {}}, {{}, {}}}), "elements [] have two owners");
  EXPECT_EQ(coverage_problem({0, 3}, {}), std::nullopt);
  EXPECT_EQ(coverage_problem({0, 3}, {{{0, 0}, {0, 3}}}), std::nullopt);
  EXPECT_EQ(coverage_problem({std::int64_t{1} << 40, std::int64_t{1} << 40}, {}),
            "the shape [1099511627776, 1099511627776] is impossible");
}

TEST(Slice, CoverageOfManyFlatChunksIsFast) {
  const Sizes shape{20000, 64};
  std::vector<Box> boxes;
  for (int part = 0; part < 10000; ++part)
    for (const Box& box : boxes_of_range(shape, std::int64_t{128} * part + (part > 0),
                                         std::int64_t{128} * (part + 1) + (part < 9999)))
      boxes.push_back(box);
  EXPECT_EQ(coverage_problem(shape, boxes), std::nullopt);
}

}  // namespace
}  // namespace colonnade::checkpoint
