// Energy of a GPU; without a GPU only that nothing is read.
#include "colonnade/train/energy_meter.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace colonnade::train {
namespace {

TEST(EnergyMeter, ReadsNothingUnlessRequested) {
  EnergyMeter meter(false, at::Device(at::kCPU));
  EXPECT_EQ(meter.lap(), 0);
}

TEST(GpuEnergyMeter, CountsTheEnergyOfAGpu) {
  EnergyMeter meter(true, at::Device(at::kCUDA, 0));
  at::Tensor x = at::ones({4096, 4096}, at::kCUDA);
  for (int i = 0; i < 200; ++i) x = x.mm(x) * 1e-4;
  EXPECT_GE(x.sum().item<double>(), 0) << "waits for the GPU";
  EXPECT_GT(meter.lap(), 0);
}

}  // namespace
}  // namespace colonnade::train
