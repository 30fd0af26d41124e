// A run that would read beyond the end of its data is rejected before the first step, with the possible
// length.
#include "colonnade/train/data_sufficiency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace colonnade::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// 10 iterations of 8 samples, with a validation of 2 x 8 samples after 4, 8 and 10.
config::Training training() {
  config::Training t;
  t.global_batch_size = 8;
  t.train_iters = 10;
  t.eval_interval = 4;
  t.eval_iters = 2;
  return t;
}

TEST(DataSufficiency, ExactlyEnoughIsEnough) {
  EXPECT_THAT(shortages({80, 48, 16}, training(), {}), IsEmpty());
  EXPECT_THAT(shortages({}, training(), {}), IsEmpty());
}

TEST(DataSufficiency, OneSampleTooFewReportsTheLargestNumberOfIterations) {
  EXPECT_THAT(shortages({79, 47, 15}, training(), {}),
              ElementsAre(AllOf(HasSubstr("--train-iters"), HasSubstr("got 79 samples for 10 iterations"),
                                HasSubstr("at most --train-iters 9,")),
                          AllOf(HasSubstr("validation"), HasSubstr("got 47 samples for 3 evaluations of 2"),
                                HasSubstr("at most --eval-iters 1,")),
                          AllOf(HasSubstr("test"), HasSubstr("at most --eval-iters 1,"))));
}

// Two steps of 4 and eight of 8 samples.
TEST(DataSufficiency, CountsTheSamplesOfAGrowingBatchSize) {
  config::Training t = training();
  t.seq_length = 1;
  t.step_batch_size_schedule = "0:4 8:8";
  EXPECT_THAT(shortages({72, 48, 16}, t, {}), IsEmpty());
  EXPECT_THAT(shortages({71, 48, 16}, t, {}),
              ElementsAre(AllOf(HasSubstr("which read 72"), HasSubstr("at most --train-iters 9,"))));
  t.train_iters.reset();
  t.train_samples = 75;
  EXPECT_THAT(shortages({71, 48, 16}, t, {}), ElementsAre(AllOf(HasSubstr("10 iterations, which read 72"),
                                                                HasSubstr("--train-samples 64,"))));
}

TEST(DataSufficiency, CountsFromTheRunsProgress) {
  // 4 iterations of 16 samples are done, 6 of 8 follow.
  const data::RunProgress done{.iteration = 4, .samples = 64};
  EXPECT_THAT(shortages({112, {}, {}}, training(), done), IsEmpty());
  EXPECT_THAT(shortages({111, {}, {}}, training(), done),
              ElementsAre(AllOf(HasSubstr("which read 112"), HasSubstr("--train-iters 9,"))));
  const data::RunProgress complete{.iteration = 10, .samples = 500};
  EXPECT_THAT(shortages({80, {}, {}}, training(), complete), IsEmpty());
}

TEST(DataSufficiency, FixNamesTheGivenLengthFlag) {
  config::Training t = training();
  t.train_iters.reset();
  t.train_samples = 160;
  t.global_batch_size = 16;
  const data::RunProgress half{.iteration = 10, .samples = 80};  // batches of 8
  EXPECT_THAT(shortages({159, {}, {}}, t, half),
              ElementsAre(AllOf(HasSubstr("--train-samples:"), HasSubstr("15 iterations, which read 160"),
                                HasSubstr("at most --train-samples 144,"))));
}

TEST(DataSufficiency, SkipTrainReadsOneEvaluation) {
  config::Training t = training();
  t.skip_train = true;
  EXPECT_THAT(shortages({1, 16, 16}, t, {}), IsEmpty());
  EXPECT_EQ(shortages({1, 15, 16}, t, {}).size(), 1U);
  EXPECT_THAT(shortages({1, 32, 16}, t, {.iteration = 5, .samples = 40}), IsEmpty());  // the second
  EXPECT_EQ(shortages({1, 31, 16}, t, {.iteration = 5, .samples = 40}).size(), 1U);
  t.eval_interval.reset();
  EXPECT_EQ(shortages({1, 15, 15}, t, {}).size(), 2U);
  t.skip_train = false;  // without an interval there is no validation
  EXPECT_THAT(shortages({80, 0, 0}, t, {}), IsEmpty());
}

TEST(DataSufficiency, RepeatedDatasetsAreNamed) {
  std::vector<data::SampleOrder> orders{{.name = "books", .passes = 1},
                                        {.name = "web", .passes = 3, .separate_final_epoch = true},
                                        {.name = "code", .passes = 12}};
  EXPECT_THAT(repeats(orders, "train"),
              ElementsAre("code has fewer tokens than the train samples require; it is read for 12 epochs",
                          "web has fewer tokens than the train samples require; it is read for 3 epochs, "
                          "the last one in part"));
  EXPECT_THAT(repeats({orders[0]}, "valid"), IsEmpty());
  EXPECT_THAT(
      repeats({{.name = "chats", .passes = 1, .num_epochs = 4}, {.name = "c", .num_epochs = 1}}, "valid"),
      ElementsAre("chats has fewer conversations than the valid samples require; it is read for 4 "
                  "epochs"));
  for (std::int64_t i = 0; i < 20; ++i) orders.push_back({.name = "small", .passes = 2 + i % 2});
  const auto many = repeats(orders, "train");
  EXPECT_EQ(many.size(), 17U);
  EXPECT_EQ(many.back(), "6 more datasets are read for 2 to 2 epochs for the train samples");
}

}  // namespace
}  // namespace colonnade::train
