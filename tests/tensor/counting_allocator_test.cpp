// Live bytes of CPU and meta tensors are counted, and LibTorch's kernels work with the allocator.
#include "colonnade/tensor/counting_allocator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace colonnade::tensor {
namespace {

/// Allocators cannot be uninstalled, so the tests share one.
void install() {
  static const bool kOnce = [] {
    count_cpu_memory();
    count_meta_memory();
    return true;
  }();
  static_cast<void>(kOnce);
}

std::uint64_t live_bytes() { return memory_use(at::kCPU).now; }

TEST(CountingAllocator, CountsLiveBytesAndThePeak) {
  install();
  const std::uint64_t before = live_bytes();
  reset_peak(at::kCPU);
  {
    const at::Tensor a = at::empty({1000}, at::kFloat);
    const at::Tensor none = at::empty({0}, at::kFloat);
    EXPECT_EQ(live_bytes(), before + 4000);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data_ptr()) % 64, 0U);
    { const at::Tensor b = at::empty({500}, at::kDouble); }
  }
  EXPECT_EQ(live_bytes(), before);
  EXPECT_EQ(memory_use(at::kCPU).peak, before + 8000);
}

TEST(CountingAllocator, ViewsUseNoMemory) {
  install();
  const at::Tensor a = at::empty({1000}, at::kFloat);
  const std::uint64_t before = live_bytes();
  reset_peak(at::kCPU);
  const at::Tensor view = a.narrow(0, 10, 500);
  const at::Tensor square = a.view({10, 100}).t();
  EXPECT_EQ(live_bytes(), before);
  EXPECT_EQ(memory_use(at::kCPU).peak, before);
}

TEST(CountingAllocator, ViewsKeepTheMemoryAlive) {
  install();
  const std::uint64_t before = live_bytes();
  at::Tensor view = at::empty({1000}, at::kFloat).narrow(0, 0, 1);
  EXPECT_EQ(live_bytes(), before + 4000);
  view.reset();
  EXPECT_EQ(live_bytes(), before);
}

TEST(CountingAllocator, ResetStartsThePeakAtLiveBytes) {
  install();
  for (const at::Device device : {at::Device(at::kCPU), at::Device(at::kMeta)}) {
    SCOPED_TRACE(device.str());
    const auto floats = at::dtype(at::kFloat).device(device);
    const std::uint64_t before = memory_use(device).now;
    const at::Tensor kept = at::empty({250}, floats);
    { const at::Tensor large = at::empty({1000}, floats); }
    EXPECT_GE(memory_use(device).peak, before + 5000);
    reset_peak(device);
    EXPECT_EQ(memory_use(device).peak, before + 1000);
    { const at::Tensor small = at::empty({10}, floats); }
    EXPECT_EQ(take_peak(device), before + 1040);
    EXPECT_EQ(take_peak(device), before + 1000) << "take_peak must reset the peak";
  }
}

TEST(CountingAllocator, CountsTheBytesMetaTensorsWouldUse) {
  install();
  const std::uint64_t before = memory_use(at::kMeta).now;
  const std::uint64_t on_cpu = live_bytes();
  {
    const at::Tensor huge = at::empty({1 << 20, 1 << 20}, at::dtype(at::kBFloat16).device(at::kMeta));
    const at::Tensor view = huge.t();
    EXPECT_EQ(memory_use(at::kMeta).now, before + (std::uint64_t{2} << 40));
    EXPECT_EQ(live_bytes(), on_cpu);
  }
  EXPECT_EQ(memory_use(at::kMeta).now, before);
}

TEST(CountingAllocator, SupportsRawAllocation) {
  install();
  const std::uint64_t before = live_bytes();
  c10::Allocator* allocator = at::getCPUAllocator();
  void* memory = allocator->raw_allocate(100);
  EXPECT_EQ(live_bytes(), before + 100);
  allocator->raw_deallocate(memory);
  EXPECT_EQ(live_bytes(), before);
}

TEST(CountingAllocator, LowPrecisionAttentionWorks) {
  install();
  const at::Tensor q = at::randn({2, 4, 64, 32}).to(at::kBFloat16).set_requires_grad(true);
  const at::Tensor y = at::scaled_dot_product_attention(q, q, q, std::nullopt, 0.0, true);
  y.sum().backward();
  EXPECT_TRUE(q.grad().isfinite().all().item<bool>());
}

}  // namespace
}  // namespace colonnade::tensor
