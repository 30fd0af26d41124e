// Every byte of a CPU tensor is counted while it lives, and LibTorch's own kernels work through the counter.
#include "colonnade/tensor/counting_allocator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace colonnade::tensor {
namespace {

/// Allocators cannot be taken out again, so the tests share one.
void count() {
  static const bool kOnce = [] {
    count_cpu_memory();
    return true;
  }();
  static_cast<void>(kOnce);
}

TEST(CountingAllocator, CountsWhatLivesAndThePeak) {
  count();
  const std::uint64_t before = cpu_memory().now;
  reset_cpu_peak();
  {
    const at::Tensor a = at::empty({1000}, at::kFloat);
    const at::Tensor none = at::empty({0}, at::kFloat);
    EXPECT_EQ(cpu_memory().now, before + 4000);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data_ptr()) % 64, 0U);
    { const at::Tensor b = at::empty({500}, at::kDouble); }
  }
  EXPECT_EQ(cpu_memory().now, before);
  EXPECT_EQ(cpu_memory().peak, before + 8000);
  EXPECT_EQ(peak_memory(at::kCPU), before + 8000);
}

TEST(CountingAllocator, ServesPlainPointers) {
  count();
  const std::uint64_t before = cpu_memory().now;
  c10::Allocator* allocator = at::getCPUAllocator();
  void* memory = allocator->raw_allocate(100);
  EXPECT_EQ(cpu_memory().now, before + 100);
  allocator->raw_deallocate(memory);
  EXPECT_EQ(cpu_memory().now, before);
}

TEST(CountingAllocator, LowPrecisionAttentionWorksThroughIt) {
  count();
  const at::Tensor q = at::randn({2, 4, 64, 32}).to(at::kBFloat16).set_requires_grad(true);
  const at::Tensor y = at::scaled_dot_product_attention(q, q, q, std::nullopt, 0.0, true);
  y.sum().backward();
  EXPECT_TRUE(q.grad().isfinite().all().item<bool>());
}

}  // namespace
}  // namespace colonnade::tensor
