// Which samples each validation of a run reads, and what it is called.
#include "colonnade/train/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace colonnade::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A validation of 2 x 8 samples after every 4 steps.
config::Run sampled() {
  config::Run run;
  run.training.global_batch_size = 8;
  run.training.train_iters = 10;
  run.training.eval_interval = 4;
  run.training.eval_iters = 2;
  return run;
}

config::Run full() {
  config::Run run = sampled();
  run.training.full_validation = true;
  return run;
}

config::Run of_sets(std::vector<std::string> names = {}) {
  config::Run run = full();
  run.data.multiple_validation_sets = true;
  run.data.validation_set_names = std::move(names);
  return run;
}

auto is(const std::string& set, std::int64_t first, std::int64_t batches) {
  return AllOf(testing::Field(&Reading::set, set), testing::Field(&Reading::first_sample, first),
               testing::Field(&Reading::batches, batches));
}

TEST(Readings, GoOnThroughTheSamplesOfOneSet) {
  EXPECT_THAT(validation_after(4, sampled(), {{0, 100}}), ElementsAre(is("validation", 0, 2)));
  EXPECT_THAT(validation_after(8, sampled(), {{0, 100}}), ElementsAre(is("validation", 16, 2)));
  EXPECT_THAT(validation_after(10, sampled(), {{0, 100}}), ElementsAre(is("validation", 32, 2)))
      << "the one at the end";
}

TEST(Readings, InFullAreAllWholeBatchesFromTheFirstSampleOn) {
  for (const std::int64_t iteration : {4, 8, 10})
    EXPECT_THAT(validation_after(iteration, full(), {{0, 47}}), ElementsAre(is("validation", 0, 5)));
  EXPECT_THAT(validation_after(4, full(), {{0, 48}}), ElementsAre(is("validation", 0, 6)));
}

TEST(Readings, OfSeveralSetsBearTheirNumbersOrNames) {
  const std::vector<data::Range> sets{{0, 47}, {47, 56}};
  EXPECT_THAT(validation_after(4, of_sets(), sets),
              ElementsAre(is("validation-0", 0, 5), is("validation-1", 47, 1)));
  EXPECT_THAT(validation_after(4, of_sets({"books", "code"}), sets),
              ElementsAre(is("validation-books", 0, 5), is("validation-code", 47, 1)));
}

TEST(Readings, AreDueAtTheInterval) {
  for (const config::Run& run : {sampled(), full()})
    for (std::int64_t i = 0; i <= 10; ++i) EXPECT_EQ(validation_due(run.training, i), i == 4 || i == 8) << i;
  config::Run none = sampled(), all = full();
  none.training.eval_iters = all.training.eval_iters = 0;
  EXPECT_FALSE(validation_due(none.training, 4));
  EXPECT_TRUE(validation_due(all.training, 4)) << "--eval-iters is of the test alone";
  all.training.eval_interval.reset();
  EXPECT_FALSE(validation_due(all.training, 4));
}

TEST(Readings, OfASetThatFillsNoBatchAreRefused) {
  EXPECT_THAT(faults_of_sets(full(), {{0, 8}}), IsEmpty());
  EXPECT_THAT(faults_of_sets(full(), {{0, 7}}),
              ElementsAre(AllOf(HasSubstr("the validation data"), HasSubstr("of 8 samples; got 7;"))));
  EXPECT_THAT(faults_of_sets(full(), {}), ElementsAre(HasSubstr("got 0;")));
  EXPECT_THAT(faults_of_sets(of_sets(), {{0, 7}, {7, 15}, {15, 16}}),
              ElementsAre(AllOf(HasSubstr("validation-0"), HasSubstr("got 7")),
                          AllOf(HasSubstr("validation-2"), HasSubstr("got 1"))));
  EXPECT_THAT(faults_of_sets(sampled(), {{0, 7}}), IsEmpty()) << "enough_data.h has it";
  config::Run never = full();
  never.training.eval_interval.reset();
  EXPECT_THAT(faults_of_sets(never, {}), IsEmpty());
  never.training.skip_train = true;
  EXPECT_THAT(faults_of_sets(never, {}), testing::SizeIs(1));
}

TEST(Readings, SayWhatTheyLeaveOut) {
  EXPECT_THAT(
      told_of_sets(of_sets(), {{0, 47}, {47, 63}}),
      ElementsAre(
          "validation-0: 40 of its 47 samples each time; left out at the end, which fills no global batch: 7",
          "validation-1: 16 of its 16 samples each time"));
  EXPECT_THAT(told_of_sets(sampled(), {{0, 47}}), IsEmpty());
}

}  // namespace
}  // namespace colonnade::train
