// Values by rank: reduction of times, memory of all ranks, and their lines in the log.
#include "colonnade/record/rank_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "colonnade/record/scalars.h"

namespace colonnade::record {
namespace {

using testing::ElementsAre;
using testing::Pair;

const OwnValues kFirst{.data_s = 0.001,
                       .forward_backward_s = 0.012,
                       .communication_s = 0.002,
                       .optimizer_s = 0.003,
                       .forward_s = 0.004,
                       .backward_s = 0.008,
                       .memory_bytes = 12e6,
                       .peak_memory_bytes = 30e6};
const OwnValues kSecond{.data_s = 0.002,
                        .forward_backward_s = 0.011,
                        .communication_s = 0.005,
                        .optimizer_s = 0.003,
                        .forward_s = 0.003,
                        .backward_s = 0.009,
                        .memory_bytes = 13e6,
                        .peak_memory_bytes = 29e6};

std::vector<RankValue> values_of_both(const RankReport& report, std::string_view option) {
  std::vector<double> all = kFirst.of(report);
  const std::vector<double> second = kSecond.of(report);
  EXPECT_EQ(all.size(), report.size());
  all.insert(all.end(), second.begin(), second.end());
  return rank_values(report, all, option);
}

TEST(RankValues, TimesAreReducedAsRequested) {
  const RankReport report{.phases = true};
  EXPECT_THAT(values_of_both(report, "max"), ElementsAre(Pair("ranks.data_ms", ElementsAre(2)),
                                                         Pair("ranks.forward_backward_ms", ElementsAre(12)),
                                                         Pair("ranks.communication_ms", ElementsAre(5)),
                                                         Pair("ranks.optimizer_ms", ElementsAre(3))));
  EXPECT_THAT(values_of_both(report, "minmax").at(1), Pair("ranks.forward_backward_ms", ElementsAre(11, 12)));
  EXPECT_THAT(values_of_both(report, "all").at(1), Pair("ranks.forward_backward_ms", ElementsAre(12, 11)));
}

TEST(RankValues, MemoryIsThatOfEveryRank) {
  EXPECT_THAT(values_of_both({.memory = true}, "max"),
              ElementsAre(Pair("ranks.memory_bytes", ElementsAre(12e6, 13e6)),
                          Pair("ranks.peak_memory_bytes", ElementsAre(30e6, 29e6))));
  const auto all = values_of_both({.phases = true, .passes = true, .memory = true}, "minmax");
  ASSERT_EQ(all.size(), 8U);
  EXPECT_THAT(all[5], Pair("ranks.backward_ms", ElementsAre(8, 9)));
  EXPECT_THAT(all[6], Pair("ranks.memory_bytes", ElementsAre(12e6, 13e6)));
}

TEST(RankValues, AreReportedByLevelAndInterval) {
  config::Logging settings;
  EXPECT_EQ(rank_report(settings, 4, true).size(), 0U);
  settings.timing_log_level = 1;
  EXPECT_EQ(rank_report(settings, 4, false).size(), 0U) << "times are on steps with a log line";
  EXPECT_TRUE(rank_report(settings, 4, true).phases);
  EXPECT_FALSE(rank_report(settings, 4, true).passes);
  settings.timing_log_level = 2;
  EXPECT_TRUE(rank_report(settings, 4, true).passes);
  settings.log_memory_interval = 2;
  EXPECT_TRUE(rank_report(settings, 4, false).memory);
  EXPECT_FALSE(rank_report(settings, 5, false).memory);
}

TEST(RankValues, EnergyIsThatOfEveryRank) {
  const RankReport report{.phases = true, .energy = true};
  std::vector<double> all = OwnValues{.energy_j = 512}.of(report);
  const std::vector<double> second = OwnValues{.energy_j = 256}.of(report);
  all.insert(all.end(), second.begin(), second.end());
  const auto values = rank_values(report, all, "max");
  EXPECT_THAT(values.back(), Pair(std::string(kEnergyKey), ElementsAre(512, 256)));
  EXPECT_THAT(rank_lines(values, "max"), testing::EndsWith("\n energy of ranks in J | 512.0, 256.0\n"));
  const StepRecord record{.step_ms = 500, .rank_values = values};
  std::map<std::string, double> scalars;
  for (const Scalar& scalar : step_scalars(record, {}, 1, {})) scalars[scalar.tag] = scalar.value;
  EXPECT_EQ(scalars.at("iter-energy/gpu"), 384);
  EXPECT_EQ(scalars.at("power/gpu"), 768);
}

TEST(RankValues, HaveALineForTimesAndOneForMemory) {
  EXPECT_EQ(rank_lines({}, "minmax"), "");
  EXPECT_EQ(
      rank_lines(values_of_both({.phases = true}, "minmax"), "minmax"),
      " times of ranks (min, max) in ms | data 1.0, 2.0 | forward-backward 11.0, 12.0 | communication 2.0, "
      "5.0 | optimizer 3.0, 3.0\n");
  EXPECT_EQ(rank_lines(values_of_both({.memory = true}, "max"), "max"),
            " memory of ranks | now 12.0 MB, 13.0 MB | peak 30.0 MB, 29.0 MB\n");
}

}  // namespace
}  // namespace colonnade::record
