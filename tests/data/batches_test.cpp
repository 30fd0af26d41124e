// Sample counts of a run, and the behavior common to batches of all models.
#include "colonnade/data/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "colonnade/base/error.h"
#include "support/files.h"

namespace colonnade::data {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<std::int64_t>;

class RunLength : public ::testing::Test {
 protected:
  RunLength() {
    training_.global_batch_size = 8;
    training_.eval_iters = 0;
  }
  config::Training training_;
};

TEST_F(RunLength, CountsSamplesLikeMegatron) {
  training_.train_iters = 100;
  training_.eval_interval = 30;
  training_.eval_iters = 5;
  EXPECT_EQ(sample_counts(training_), (SampleCounts{800, 4 * 5 * 8, 5 * 8}));
  training_.train_iters.reset();
  training_.train_samples = 500;
  EXPECT_EQ(sample_counts(training_), (SampleCounts{500, 3 * 5 * 8, 5 * 8}));
  training_.full_validation = true;
  EXPECT_EQ(sample_counts(training_), (SampleCounts{500, std::nullopt, 5 * 8})) << "one epoch";
}

TEST_F(RunLength, CountsRemainingIterationsAfterABatchSizeChange) {
  training_.train_samples = 160;
  training_.global_batch_size = 8;
  training_.eval_interval = 5;
  training_.eval_iters = 1;
  EXPECT_EQ(last_iteration(training_, {}), 20);
  const RunProgress half{.iteration = 10, .samples = 80};
  EXPECT_EQ(last_iteration(training_, half), 20);
  training_.global_batch_size = 16;
  EXPECT_EQ(last_iteration(training_, half), 15);
  EXPECT_EQ(last_iteration(training_, {.iteration = 11, .samples = 96}), 15);
  EXPECT_EQ(sample_counts(training_, half), (SampleCounts{160, 4 * 16, 16}));
  training_.global_batch_size = 4;
  EXPECT_EQ(last_iteration(training_, half), 30);
  training_.global_batch_size = 48;  // the remaining samples do not fill a batch
  EXPECT_EQ(last_iteration(training_, half), 11);
  EXPECT_EQ(last_iteration(training_, {.iteration = 12, .samples = 176}), 12);
}

// 0, 4, 8 | 16, 24, 32: three steps of 4 or 8 samples per threshold; the next would end at 40.
TEST_F(RunLength, CountsTheStepsOfAGrowingBatchSize) {
  training_.seq_length = 2;
  training_.step_batch_size_schedule = "0:4 16:8";
  training_.train_samples = 39;
  training_.eval_interval = 2;
  training_.eval_iters = 3;
  EXPECT_EQ(last_iteration(training_, {}), 5);
  EXPECT_EQ(last_iteration(training_, {.iteration = 2, .samples = 8}), 5);
  EXPECT_EQ(sample_counts(training_), (SampleCounts{39, (5 / 2 + 1) * 3 * 8, 3 * 8}));
  training_.train_samples.reset();
  training_.train_iters = 5;
  EXPECT_EQ(last_iteration(training_, {}), 5);
  EXPECT_EQ(sample_counts(training_)[0], 5 * 8) << "iterations of the final size, as in Megatron";
}

TEST_F(RunLength, RequestsSamplesForAllEvaluations) {
  training_.eval_iters = 2;
  for (const bool skip_train : {false, true})
    for (std::int64_t interval = 1; interval <= 7; ++interval)
      for (std::int64_t iteration = 1; iteration <= 20; ++iteration) {
        training_.skip_train = skip_train;
        training_.eval_interval = interval;
        training_.train_iters.reset();
        if (!skip_train) training_.train_iters = iteration;
        const RunProgress done{.iteration = skip_train ? iteration : 0};
        std::int64_t expected = iteration / interval;  // after each interval, and at the end of the run
        if (iteration % interval != 0) ++expected;
        EXPECT_EQ(evaluations(training_, iteration), expected);
        EXPECT_GE(sample_counts(training_, done)[1], expected * 2 * training_.global_batch_size);
      }
  training_.eval_interval.reset();
  EXPECT_EQ(evaluations(training_, 5), 1);  // validation only
  training_.skip_train = false;
  EXPECT_EQ(evaluations(training_, 5), 0);
}

// Evaluations after 6, 9, ... and at the end, as the loop runs them.
TEST_F(RunLength, EvaluationsStartAtTheGivenIteration) {
  training_.eval_interval = 3;
  training_.eval_iters = 2;
  training_.eval_global_batch_size = 6;
  for (const std::int64_t start : {0, 1, 3, 4, 5, 6, 7, 50}) {
    training_.start_eval_at_iter = start;
    std::int64_t run = 0;
    for (std::int64_t iteration = 1; iteration <= 20; ++iteration) {
      const bool due = iteration % 3 == 0 && iteration >= start;
      run += due ? 1 : 0;
      EXPECT_EQ(evaluations(training_, iteration), run + (due ? 0 : 1)) << start << ", " << iteration;
    }
    training_.train_iters = 20;
    EXPECT_GE(sample_counts(training_)[1], (run + 1) * 2 * 6) << start;
  }
  training_.start_eval_at_iter = 7;  // Megatron: (20 / 3 + 1 - 7 / 3) evaluations
  EXPECT_EQ(sample_counts(training_), (SampleCounts{20 * 8, 5 * 2 * 6, 2 * 6}));
}

/// Sample i consists of the token i.
class Numbered final : public SampleSource {
 public:
  explicit Numbered(std::int64_t size) : size_(size) {}
  [[nodiscard]] std::int64_t size() const override { return size_; }
  void tokens(std::int64_t number, std::int64_t /*pad*/, std::span<std::int64_t> out) const override {
    check_number(number);
    std::ranges::fill(out, number);
  }
  [[nodiscard]] std::string name() const override { return "numbers"; }
  [[nodiscard]] std::vector<SampleOrder> orders() const override { return {}; }
  [[nodiscard]] std::vector<SampleSpan> spans(std::int64_t) const override { return {}; }
  void read(const SampleSpan&, std::span<std::int64_t>) const override {}
  void for_each_source(const SourceVisitor&) const override {}

 private:
  std::int64_t size_;
};

/// Rows of one token, with ids below 20.
class Rows final : public Batches {
 public:
  Rows(std::int64_t size, std::int64_t cyclic_step)
      : Batches(std::make_shared<Numbered>(size), cyclic_step) {}

 private:
  [[nodiscard]] HostBatch make(std::span<const std::int64_t> chosen) const override {
    HostBatch batch{.seq = 1, .tokens = Ints(chosen.size())};
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      samples().tokens(chosen[i], 0, std::span(batch.tokens).subspan(i, 1));
      check_vocabulary(std::span(batch.tokens).subspan(i, 1), 20, chosen[i]);
    }
    return batch;
  }
};

TEST(Batches, SingleReadsSamplesInIndexOrder) {
  const Rows rows(30, 0);
  EXPECT_FALSE(rows.is_cyclic());
  EXPECT_EQ(rows.size(), 30);
  EXPECT_EQ(rows.permuted(), 0);
  const HostBatch batch = rows.get(5, 3);
  EXPECT_EQ(batch.micro_batch, 3);
  EXPECT_EQ(batch.tokens, (Ints{5, 6, 7}));
  EXPECT_EQ(batch.samples, (Ints{5, 6, 7}));
  EXPECT_EQ(batch.seq, 1);
  EXPECT_EQ(rows.get(Ints{9, 2}).tokens, (Ints{9, 2}));
  EXPECT_THAT(
      test::message_of<DataError>([&] { (void)rows.get(18, 3); }),
      testing::AllOf(
          HasSubstr("must be 0 to 19; got 20 in sample 20"),
          HasSubstr("give that one or --vocab-size 21 or more (21 for numbers of Megatron's NullTokenizer")));
  EXPECT_THAT(test::message_of<DataError>([&] { (void)rows.get(30, 1); }),
              HasSubstr("sample numbers must be 0 to 29; got 30"));
}

TEST(Batches, CyclicRepeatsShuffledEpochs) {
  const Rows rows(19, 4);
  EXPECT_TRUE(rows.is_cyclic());
  EXPECT_EQ(rows.size(), 19);
  EXPECT_EQ(rows.permuted(), 16);
  const HostBatch batch = rows.get(16 * 3, 16);
  EXPECT_EQ(batch.tokens, CyclicOrder(19, 4).order(3));
  EXPECT_EQ(batch.samples.front(), 48);
  const auto of_epoch = [](std::int64_t number) { return CyclicOrder(19, 4).order(number); };
  EXPECT_EQ(rows.get(Ints{15, 16, 0}).tokens, (Ints{of_epoch(0)[15], of_epoch(1)[0], of_epoch(0)[0]}));
}

TEST(Batches, ThreadsInDifferentEpochsReadTheSameBatches) {
  const Rows rows(19, 4);
  std::vector<std::jthread> threads;
  for (std::int64_t epoch = 0; epoch < 4; ++epoch)
    threads.emplace_back([&rows, epoch] {
      const Ints expected = CyclicOrder(19, 4).order(epoch);
      for (int i = 0; i < 200; ++i) EXPECT_EQ(rows.get(16 * epoch, 16).tokens, expected);
    });
}

}  // namespace
}  // namespace colonnade::data
