// Relative position buckets against Transformers, and the bias with its gradient.
#include "colonnade/ops/relative_bias.h"

#include "ops/support.h"

namespace colonnade::ops {
namespace {

using at::Tensor;
using test::distance;

struct Recorded {
  RelativePositionBuckets distances;
  std::vector<std::int64_t> buckets;  ///< bucket of each kRelativePositions
};

constexpr std::int64_t kRelativePositions[] = {-1000, -200, -128, -127, -100, -65, -64, -40, -17,
                                               -16,   -15,  -9,   -8,   -7,   -1,  0,   1,   7,
                                               8,     9,    15,   16,   40,   64,  127, 128, 200};

/// Recorded from T5Attention._relative_position_bucket of Transformers 5.23.
const std::vector<Recorded> kRecorded = {
    {{32, 128, true},
     {15, 15, 15, 15, 15, 14, 14, 12, 10, 10, 9, 8, 8, 7, 1, 0, 17, 23, 24, 24, 25, 26, 28, 30, 31, 31, 31}},
    {{32, 128, false},
     {31, 31, 31, 31, 30, 26, 26, 23, 16, 16, 15, 9, 8, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
    {{16, 24, true},
     {7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 6, 5, 5, 5, 1, 0, 9, 13, 13, 13, 14, 15, 15, 15, 15, 15, 15}},
    {{16, 24, false},
     {15, 15, 15, 15, 15, 15, 15, 15, 13, 13, 12, 8, 8, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}};

TEST(RelativeBias, BucketsEqualTransformers) {
  constexpr std::int64_t kQuery = 1000;
  for (const Recorded& recorded : kRecorded) {
    const Tensor all = relative_position_buckets(kQuery + 1, kQuery + 201, recorded.distances, at::kCPU);
    for (std::size_t i = 0; i < recorded.buckets.size(); ++i)
      EXPECT_EQ(all[kQuery][kQuery + kRelativePositions[i]].item<std::int64_t>(), recorded.buckets[i])
          << recorded.distances.buckets << " buckets, relative position " << kRelativePositions[i];
  }
}

TEST(RelativeBias, EqualsTheTableLookupAndAccumulatesGradients) {
  at::manual_seed(1);
  const RelativePositionBuckets distances{8, 12, true};
  for (const auto type : test::kTypes) {
    const auto table = test::parameter(test::random({8, 3}, type));
    const Tensor ref_table = table->value.detach().to(at::kDouble).set_requires_grad(true);
    const Tensor buckets = relative_position_buckets(5, 7, distances, ref_table.device());
    const Tensor ref =
        ref_table.index_select(0, buckets.view(-1)).view({5, 7, 3}).permute({2, 0, 1}).unsqueeze(0);
    const Tensor probe = test::random(ref.sizes()).to(type).to(at::kDouble);
    EXPECT_TRUE(at::equal(relative_bias(*table, 5, 7, distances).to(at::kDouble), ref));
    for (const int times : {1, 2}) {  // the second backward adds to the first
      test::gradients(relative_bias(*table, 5, 7, distances), probe, {table->value});
      EXPECT_LT(distance(table->main_grad, times * test::gradients(ref, probe, {ref_table})[0]),
                type == at::kDouble ? 1e-14 : 1e-6);
    }
  }
}

}  // namespace
}  // namespace colonnade::ops
