// Reuse without page faults, bounded waste, and bounded total size of the host memory pool.
#include "colonnade/tensor/host_memory_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace colonnade::tensor {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

long page_faults() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  return use.ru_minflt;
}

TEST(HostMemoryPool, ReusesABlockOfTheSameSizeWithoutPageFaults) {
  HostMemoryPool pool;
  void* const first = pool.allocate(64 * kMiB);
  std::memset(first, 1, 64 * kMiB);
  pool.free(first);
  const long before = page_faults();
  void* const second = pool.allocate(64 * kMiB - 100);
  std::memset(second, 2, 64 * kMiB - 100);
  EXPECT_EQ(second, first);
  EXPECT_LT(page_faults() - before, 16);
  pool.free(second);
}

TEST(HostMemoryPool, ReturnsUsablePageAlignedBlocks) {
  HostMemoryPool pool;
  for (const std::size_t bytes : {kMiB, 3 * kMiB + 5, 2 * kMiB}) {
    void* const block = pool.allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 4096, 0U);
    static_cast<char*>(block)[bytes - 1] = 1;
    pool.free(block);
  }
}

TEST(HostMemoryPool, WastesAtMostAnEighth) {
  HostMemoryPool pool;
  void* const other = pool.allocate(32 * kMiB);  // so that the pool may cache
  void* const large = pool.allocate(16 * kMiB);
  pool.free(large);
  void* const half = pool.allocate(8 * kMiB);
  EXPECT_NE(half, large);
  void* const close = pool.allocate(15 * kMiB);  // 16 is within 15 + 15/8
  EXPECT_EQ(close, large);
  for (void* const block : {other, half, close}) pool.free(block);
}

TEST(HostMemoryPool, CachesAtMostAQuarterOfThePeakInAddition) {
  HostMemoryPool pool;
  std::vector<void*> blocks(10);
  for (void*& block : blocks) block = pool.allocate(4 * kMiB);
  for (void* block : blocks) pool.free(block);
  EXPECT_EQ(pool.use().cached, 40 * kMiB);
  void* const other = pool.allocate(30 * kMiB);  // no cached block fits: 20 of 40 MiB may stay cached
  EXPECT_EQ(pool.use().allocated, 30 * kMiB);
  EXPECT_EQ(pool.use().cached, 20 * kMiB);
  pool.free(other);
}

TEST(HostMemoryPool, IsThreadSafe) {
  HostMemoryPool pool;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 200; ++i) {
        const std::size_t bytes = kMiB * static_cast<std::size_t>(1 + (i + t) % 5);
        auto* const block = static_cast<unsigned char*>(pool.allocate(bytes));
        block[0] = block[bytes - 1] = static_cast<unsigned char>(t);
        ASSERT_EQ(block[0], t);
        ASSERT_EQ(block[bytes - 1], t);
        pool.free(block);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.use().allocated, 0U);
}

TEST(HostMemoryPool, ReportsOutOfMemory) {
  HostMemoryPool pool;
  EXPECT_THROW(
      {
        try {
          pool.allocate(std::size_t{1} << 50);
        } catch (const std::exception& error) {
          const std::string text = error.what();
          EXPECT_NE(text.find("memory must be sufficient for 1125899906842624 more bytes"),
                    std::string::npos);
          EXPECT_EQ(text.find(".cpp"), std::string::npos) << "no source location in a user error: " << text;
          throw;
        }
      },
      std::exception);
}

}  // namespace
}  // namespace colonnade::tensor
