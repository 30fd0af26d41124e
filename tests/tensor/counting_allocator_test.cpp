// Bytes of tensors, alive and at their peak, counted in front of LibTorch's allocator.
#include "colonnade/tensor/counting_allocator.h"

#include <gtest/gtest.h>

namespace colonnade::tensor {
namespace {

TEST(CpuMemory, CountsWhatIsAliveAndTheMostThatWas) {
  count_cpu_memory();
  const MemoryUse before = cpu_memory();
  constexpr std::uint64_t kBytes = 3 * 1000 * 4;
  {
    const at::Tensor one = at::empty({3, 1000}, at::kFloat);
    EXPECT_EQ(cpu_memory().now, before.now + kBytes);
    const at::Tensor view = one.narrow(0, 1, 2);
    EXPECT_EQ(cpu_memory().now, before.now + kBytes) << "a view takes no memory";
    const at::Tensor two = at::empty({3, 1000}, at::kFloat);
  }
  EXPECT_EQ(cpu_memory().now, before.now);
  EXPECT_GE(cpu_memory().peak, before.now + 2 * kBytes);
  EXPECT_EQ(peak_memory(at::kCPU), cpu_memory().peak);
  reset_cpu_peak();
  EXPECT_EQ(cpu_memory().peak, cpu_memory().now);
}

}  // namespace
}  // namespace colonnade::tensor
