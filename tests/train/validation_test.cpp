// Sample ranges and names of a run's validations.
#include "colonnade/train/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace colonnade::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A validation of 2 x 8 samples every 4 steps.
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

config::Run with_sets(std::vector<std::string> names = {}) {
  config::Run run = full();
  run.data.multiple_validation_sets = true;
  run.data.validation_set_names = std::move(names);
  return run;
}

auto is(const std::string& set, std::int64_t first, std::int64_t samples) {
  return AllOf(testing::Field(&EvalRange::set, set), testing::Field(&EvalRange::first_sample, first),
               testing::Field(&EvalRange::samples, samples));
}

TEST(EvalRanges, AdvanceThroughTheSamplesOfOneSet) {
  EXPECT_THAT(validation_ranges(4, sampled(), {{0, 100}}), ElementsAre(is("validation", 0, 16)));
  EXPECT_THAT(validation_ranges(8, sampled(), {{0, 100}}), ElementsAre(is("validation", 16, 16)));
  EXPECT_THAT(validation_ranges(10, sampled(), {{0, 100}}), ElementsAre(is("validation", 32, 16)))
      << "the last one";
}

TEST(EvalRanges, HaveTheBatchSizeOfEvaluations) {
  config::Run run = sampled();
  run.training.start_eval_at_iter = 5;
  run.training.eval_global_batch_size = 6;
  EXPECT_FALSE(validation_due(run.training, 4));
  EXPECT_TRUE(validation_due(run.training, 8));
  EXPECT_THAT(validation_ranges(8, run, {{0, 100}}), ElementsAre(is("validation", 0, 12)));
  EXPECT_THAT(validation_ranges(10, run, {{0, 100}}), ElementsAre(is("validation", 12, 12)));
}

TEST(EvalRanges, FullValidationReadsAllSamples) {
  for (const std::int64_t iteration : {4, 8, 10})
    EXPECT_THAT(validation_ranges(iteration, full(), {{0, 47}}), ElementsAre(is("validation", 0, 47)));
  EXPECT_THAT(validation_ranges(4, full(), {{0, 5}}), ElementsAre(is("validation", 0, 5)));
}

TEST(EvalRanges, SeveralSetsHaveIndicesOrNames) {
  const std::vector<data::Range> sets{{0, 47}, {47, 56}};
  EXPECT_THAT(validation_ranges(4, with_sets(), sets),
              ElementsAre(is("validation-0", 0, 47), is("validation-1", 47, 9)));
  EXPECT_THAT(validation_ranges(4, with_sets({"books", "code"}), sets),
              ElementsAre(is("validation-books", 0, 47), is("validation-code", 47, 9)));
}

TEST(EvalRanges, AreDueAtTheInterval) {
  for (const config::Run& run : {sampled(), full()})
    for (std::int64_t i = 0; i <= 10; ++i) EXPECT_EQ(validation_due(run.training, i), i == 4 || i == 8) << i;
  config::Run none = sampled(), all = full();
  none.training.eval_iters = all.training.eval_iters = 0;
  EXPECT_FALSE(validation_due(none.training, 4));
  EXPECT_TRUE(validation_due(all.training, 4)) << "--eval-iters applies to the test only";
  all.training.eval_interval.reset();
  EXPECT_FALSE(validation_due(all.training, 4));
}

TEST(EvalRanges, SetsWithoutSamplesAreRejected) {
  EXPECT_THAT(validation_faults(full(), {{0, 1}}), IsEmpty());
  EXPECT_THAT(validation_faults(full(), {}),
              ElementsAre(AllOf(HasSubstr("the validation data"), HasSubstr("got none;"))));
  EXPECT_THAT(validation_faults(with_sets(), {{0, 0}, {0, 8}, {8, 8}}),
              ElementsAre(HasSubstr("validation-0"), HasSubstr("validation-2")));
  EXPECT_THAT(validation_faults(sampled(), {{0, 0}}), IsEmpty()) << "data_sufficiency.h reports it";
  config::Run never = full();
  never.training.eval_interval.reset();
  EXPECT_THAT(validation_faults(never, {}), IsEmpty());
  never.training.skip_train = true;
  EXPECT_THAT(validation_faults(never, {}), testing::SizeIs(1));
}

TEST(EvalRanges, NotesReportSamplesAndPadding) {
  EXPECT_THAT(validation_notes(with_sets(), {{0, 47}, {47, 63}}),
              ElementsAre("validation-0: reads 47 samples each time, the last 7 in a padded batch",
                          "validation-1: reads 16 samples each time"));
  EXPECT_THAT(validation_notes(sampled(), {{0, 47}}), IsEmpty());
}

}  // namespace
}  // namespace colonnade::train
