// Values that ranks exchange after a step.
#include "colonnade/train/step_exchange.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "colonnade/comm/thread_ranks.h"

namespace colonnade::train {
namespace {

TEST(StepExchange, ReducesOverRanksAndKeepsTheValuesOfEach) {
  comm::run_ranks(3, [](comm::Communicators& ranks) {
    const double rank = ranks.rank();
    const StepExchange all = exchange_step({.stop = rank == 2,
                                            .step_ms = 10 - rank,
                                            .peak_memory = rank == 0 ? 5.0 : 7.0,
                                            .values = {rank, 100 + rank}},
                                           ranks.world(), at::dtype(at::kBFloat16));
    EXPECT_TRUE(all.stop);
    EXPECT_EQ(all.step_ms, 10);
    EXPECT_EQ(all.peak_memory, 7);
    EXPECT_EQ(all.peak_rank, 1) << "the first of those with the largest";
    EXPECT_THAT(all.values, testing::ElementsAre(0, 100, 1, 101, 2, 102));
  });
}

}  // namespace
}  // namespace colonnade::train
