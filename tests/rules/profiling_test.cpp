// Rules for profiles: fixes, and devices of other machines. Every rule has an example in rules_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/config/derive.h"
#include "rules/rule_examples.h"

namespace colonnade::rules {
namespace {

using ::testing::ElementsAre;

/// Lines of the problems of a rule's example with more settings.
std::vector<std::string> lines_of(const std::string& id, const std::string& more = "") {
  config::Run run = test::example_of(id).broken();
  for (const Edit& edit : read_edits(more)) apply(run, edit);
  std::vector<std::string> lines;
  for (const Problem& problem : test::problems_of(run)) lines.push_back(problem.line());
  return lines;
}

TEST(ProfilingRules, NameTheNearestValidSteps) {
  EXPECT_THAT(lines_of("profile-steps"),
              ElementsAre("--profile-step-end must be above --profile-step-start; got 5 and 5; set "
                          "--profile-step-end 7 [profile-steps]"));
  EXPECT_THAT(lines_of("profile-in-run"),
              ElementsAre("--profile-step-start must be at most --train-iters; got 200 and 100; set "
                          "--profile-step-start 99 and set --profile-step-end 101 [profile-in-run]"));
  EXPECT_THAT(lines_of("profile-in-run", "train_iters=unset; train_samples=1600"), ElementsAre());
}

TEST(ProfilingRules, KeepTheRanksThatExist) {
  EXPECT_THAT(lines_of("profile-ranks"),
              ElementsAre("--profile-ranks must be ranks of the run, 0 to 7; got 0 8; set --profile-ranks 0 "
                          "[profile-ranks]"));
  EXPECT_THAT(lines_of("profile-ranks", "profile=false"), ElementsAre()) << "a note without --profile";
}

TEST(ProfilingRules, PlansDoNotCheckTheDeviceOfTheirMachine) {
  for (const char* id : {"nvtx-device", "memory-history", "energy-device"}) {
    config::Run run = test::example_of(id).broken();
    config::derive(run);
    EXPECT_EQ(first_broken(run, Purpose::kTrain), id);
    EXPECT_EQ(report(check(run, Purpose::kPlan)), "") << id;
  }
}

}  // namespace
}  // namespace colonnade::rules
