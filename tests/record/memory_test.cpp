// Memory by phase: peaks, gathering over ranks, and the log line.
#include "colonnade/record/memory.h"

#include <gtest/gtest.h>

#include "colonnade/comm/thread_ranks.h"

namespace colonnade::record {
namespace {

TEST(MemoryPeaks, KeepTheLargestOfEachPhase) {
  MemoryPeaks peaks;
  peaks.raise(MemoryPhase::kOptimizer, 5);
  peaks.raise(MemoryPhase::kEvaluate, 9);
  peaks.raise(MemoryPhase::kOptimizer, 3);
  EXPECT_EQ(peaks[MemoryPhase::kOptimizer], 5U);
  EXPECT_EQ(peaks[MemoryPhase::kCheckpoint], 0U);
  EXPECT_EQ(peaks.largest(), 9U);
}

TEST(MemoryPeaks, ArePlanned) {
  cost::StageMemory plan;
  plan.parameters = plan.init_bucket = 10;
  plan.gradients = 20;
  plan.optimizer = 5;
  plan.rotary_tables = 1;
  plan.activations = 100;
  plan.workspace = 7;
  plan.evaluation = 3;
  EXPECT_EQ(planned_peaks(plan), (MemoryPeaks{{41, 143, 36, 39, 0}}));
}

TEST(MemoryPeaks, AreGatheredOnEveryRank) {
  comm::run_ranks(3, [](comm::Communicators& ranks) {
    MemoryPeaks mine;
    const auto rank = static_cast<std::uint64_t>(ranks.rank());
    mine.raise(MemoryPhase::kStartUp, (std::uint64_t{1} << 53) + 1 + rank);  // not representable as a double
    mine.raise(MemoryPhase::kCheckpoint, 10 * rank);
    const auto all = gather_peaks(mine, ranks.world(), at::dtype(at::kBFloat16));
    ASSERT_EQ(all.size(), 3U);
    for (std::uint64_t r = 0; r < 3; ++r) {
      EXPECT_EQ(all[r][MemoryPhase::kStartUp], (std::uint64_t{1} << 53) + 1 + r);
      EXPECT_EQ(all[r][MemoryPhase::kCheckpoint], 10 * r);
      EXPECT_EQ(all[r][MemoryPhase::kEvaluate], 0U);
    }
  });
}

TEST(MemoryPeaks, LineDescribesTheRankWithTheHighestPeak) {
  const std::vector<MemoryPeaks> measured{{{1'000'000, 2'000'000, 0, 0, 0}},
                                          {{1'100'000, 9'000'000, 0, 0, 50}}};
  const std::vector<MemoryPeaks> planned{{}, {{1'200'000, 8'000'000, 7, 7, 0}}};
  EXPECT_EQ(
      memory_line(measured, planned),
      "memory: rank 1 has the highest peak; start-up 1.10 MB (planned 1.20 MB), forward-backward 9.00 MB "
      "(planned 8.00 MB), checkpoint 50.0 B");
}

}  // namespace
}  // namespace colonnade::record
