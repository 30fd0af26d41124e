// Assumed expert load of plans and dry runs.
#include "colonnade/layout/expert_capacity.h"

#include <gmock/gmock.h>

#include <numeric>

namespace colonnade::layout {
namespace {

using ::testing::ElementsAre;

config::Moe moe(std::int64_t experts, std::int64_t choices, double imbalance = 1) {
  config::Moe m;
  m.num_experts = experts;
  m.router_topk = choices;
  m.assumed_imbalance = imbalance;
  return m;
}

TEST(Capacity, RowsAreBalancedUnlessAnImbalanceIsAssumed) {
  EXPECT_THAT(assumed_rows(moe(4, 2), 80, 2), ElementsAre(20, 20, 20, 20));
  EXPECT_THAT(assumed_rows(moe(4, 2, 1.5), 80, 2), ElementsAre(30, 30, 10, 10));
  EXPECT_THAT(assumed_rows(moe(6, 2, 1.5), 60, 3), ElementsAre(15, 15, 7, 8, 7, 8));
  EXPECT_THAT(assumed_rows(moe(4, 2, 1.5), 80, 1), ElementsAre(20, 20, 20, 20)) << "one rank has all experts";
}

TEST(Capacity, SharesOfAllRanksAddUp) {
  for (const double imbalance : {1.0, 1.25, 3.0}) {
    const config::Moe m = moe(16, 2, imbalance);
    double all = 0;
    for (int rank = 0; rank < 8; ++rank) all += assumed_share(m, rank, 8);
    EXPECT_DOUBLE_EQ(all, 8);
    EXPECT_DOUBLE_EQ(assumed_share(m, 0, 8), imbalance);
    const auto rows = assumed_rows(m, 1001, 8);
    EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}), 1001);
  }
}

TEST(Capacity, ARankReceivesATokenOncePerExpert) {
  EXPECT_DOUBLE_EQ(largest_imbalance(moe(8, 2), 8), 4) << "top-2 routing";
  EXPECT_DOUBLE_EQ(largest_imbalance(moe(8, 2), 2), 2) << "all rows on one rank";
  EXPECT_DOUBLE_EQ(largest_imbalance(moe(8, 2), 1), 1);
  config::Moe m = moe(8, 2, 3);
  m.expert_capacity_factor = 1.25;
  EXPECT_DOUBLE_EQ(largest_imbalance(m, 8), 1.25);
  EXPECT_DOUBLE_EQ(assumed_share(m, 0, 8), 1.25) << "limited by the capacity";
  m.pad_expert_input_to_capacity = true;
  EXPECT_DOUBLE_EQ(largest_imbalance(m, 8), 1);
}

}  // namespace
}  // namespace colonnade::layout
