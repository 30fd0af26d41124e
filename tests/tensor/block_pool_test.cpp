// Blocks come back without new faults, waste little, and the pool never holds much more than was once in use.
#include "colonnade/tensor/block_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace colonnade::tensor {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

long faults() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  return use.ru_minflt;
}

TEST(BlockPool, ServesTheSameSizeFromTheSameMemoryWithoutFaults) {
  BlockPool pool;
  void* const first = pool.take(64 * kMiB);
  std::memset(first, 1, 64 * kMiB);
  pool.give(first);
  const long before = faults();
  void* const second = pool.take(64 * kMiB - 100);
  std::memset(second, 2, 64 * kMiB - 100);
  EXPECT_EQ(second, first);
  EXPECT_LT(faults() - before, 16);
  pool.give(second);
}

TEST(BlockPool, GivesEveryByteAsked) {
  BlockPool pool;
  for (const std::size_t bytes : {kMiB, 3 * kMiB + 5, 2 * kMiB}) {
    void* const block = pool.take(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 4096, 0U);
    static_cast<char*>(block)[bytes - 1] = 1;
    pool.give(block);
  }
}

TEST(BlockPool, WastesAtMostAnEighth) {
  BlockPool pool;
  void* const other = pool.take(32 * kMiB);  // so that there is room to keep
  void* const large = pool.take(16 * kMiB);
  pool.give(large);
  void* const half = pool.take(8 * kMiB);
  EXPECT_NE(half, large);
  void* const close = pool.take(15 * kMiB);  // 16 is within 15 + 15/8
  EXPECT_EQ(close, large);
  for (void* const block : {other, half, close}) pool.give(block);
}

TEST(BlockPool, HoldsAtMostAQuarterMoreThanWasLentAtOneTime) {
  BlockPool pool;
  std::vector<void*> blocks(10);
  for (void*& block : blocks) block = pool.take(4 * kMiB);
  for (void* block : blocks) pool.give(block);
  EXPECT_EQ(pool.use().kept, 40 * kMiB);
  void* const other = pool.take(30 * kMiB);  // no kept block is of this size: 20 of 40 MiB may stay
  EXPECT_EQ(pool.use().lent, 30 * kMiB);
  EXPECT_EQ(pool.use().kept, 20 * kMiB);
  pool.give(other);
}

TEST(BlockPool, ServesManyThreads) {
  BlockPool pool;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 200; ++i) {
        const std::size_t bytes = kMiB * static_cast<std::size_t>(1 + (i + t) % 5);
        auto* const block = static_cast<unsigned char*>(pool.take(bytes));
        block[0] = block[bytes - 1] = static_cast<unsigned char>(t);
        ASSERT_EQ(block[0], t);
        ASSERT_EQ(block[bytes - 1], t);
        pool.give(block);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.use().lent, 0U);
}

TEST(BlockPool, SaysWhenTheSystemHasNoMore) {
  BlockPool pool;
  EXPECT_THROW(
      {
        try {
          pool.take(std::size_t{1} << 50);
        } catch (const std::exception& error) {
          const std::string text = error.what();
          EXPECT_NE(text.find("memory: the system must give"), std::string::npos);
          EXPECT_EQ(text.find(".cpp"), std::string::npos) << "a user needs no place in the source: " << text;
          throw;
        }
      },
      std::exception);
}

}  // namespace
}  // namespace colonnade::tensor
