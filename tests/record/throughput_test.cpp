// Speed formulas against values computed by hand.
#include "colonnade/record/throughput.h"

#include <gtest/gtest.h>

namespace colonnade::record {
namespace {

TEST(Throughput, MatchesHandComputedValues) {
  EXPECT_DOUBLE_EQ(tokens_per_second(4096, 500), 8192);
  EXPECT_DOUBLE_EQ(tflops_per_device(6e15, 2000, 8), 375);  // 6 PFLOP in 2 s on 8 devices
  EXPECT_DOUBLE_EQ(*model_flops_utilization(375, 1000), 0.375);
  EXPECT_FALSE(model_flops_utilization(375, std::nullopt));
}

TEST(Throughput, PeakDependsOnDeviceAndDtype) {
  using config::Dtype;
  EXPECT_EQ(*peak_tflops("NVIDIA H200", Dtype::kBfloat16), 989);
  EXPECT_EQ(*peak_tflops("NVIDIA H100 80GB HBM3", Dtype::kFloat16), 989);
  EXPECT_EQ(*peak_tflops("NVIDIA A100-SXM4-80GB", Dtype::kBfloat16), 312);
  EXPECT_EQ(*peak_tflops("NVIDIA A100-SXM4-80GB", Dtype::kFloat32), 19.5);
  EXPECT_EQ(*peak_tflops("NVIDIA H200 NVL", Dtype::kBfloat16), 835);
  EXPECT_FALSE(peak_tflops("NVIDIA H200 MIG 1g.18gb", Dtype::kBfloat16));
  EXPECT_FALSE(peak_tflops("NVIDIA T400", Dtype::kBfloat16));
}

TEST(Throughput, StepWithoutTimeGivesZero) {
  EXPECT_EQ(tokens_per_second(4096, 0), 0);
  EXPECT_EQ(tflops_per_device(1, 0, 8), 0);
}

TEST(TimeLeft, SkipsTheFirstStepAndCountsDown) {
  TimeLeft left(10);
  EXPECT_FALSE(left.seconds());
  left.add(1, 60000);  // warm-up
  EXPECT_FALSE(left.seconds());
  left.add(2, 1000);
  EXPECT_DOUBLE_EQ(*left.seconds(), 8);
  left.add(3, 2000);  // mean 1000 + 0.1 * 1000
  EXPECT_DOUBLE_EQ(*left.seconds(), 7 * 1.1);
  left.add(10, 1000);
  EXPECT_EQ(*left.seconds(), 0);
}

}  // namespace
}  // namespace colonnade::record
