// Runs whose batch size grows equal runs that are resumed with the next batch size.
#include "colonnade/config/batch_schedule.h"

#include "checkpoint/fixtures.h"
#include "colonnade/data/samples/gpt/gpt_batches.h"
#include "colonnade/job/checkpoint.h"
#include "job/runs.h"

namespace colonnade::job {
namespace {

using checkpoint::test::TempFolder;
using test::operator+;

constexpr const char* kModel =
    "--num-layers 4 --hidden-size 16 --ffn-hidden-size 24 --num-attention-heads 4 --vocab-size 37 --seq-length 8 "
    "--max-position-embeddings 8 --micro-batch-size 1 --make-vocab-size-divisible-by 8 --eval-iters 0 ";

constexpr test::Layout kScheduledLayouts[] = {
    {"One", 1, ""},
    {"Dp2", 2,
     "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --ddp-bucket-size 700"},
    {"Pp2", 2, "--pipeline-model-parallel-size 2"},
    {"Virtual", 2, "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1"},
    {"ZbV", 2, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v"},
    {"PerToken", 2, "--calculate-per-token-loss"}};

config::Run run_with(const test::Layout& layout, const std::string& batches) {
  return test::settings(layout.world, test::words(kModel + batches) + test::words(layout.flags));
}

struct Trained {
  test::Curve curve;
  std::vector<at::Tensor> values;  ///< of rank 0
  std::vector<std::int64_t> consumed;
};

/// Trains `count` steps, from the checkpoint in `load` if given, and saves in `save` if given.
Trained train_from(const config::Run& run, int count, const std::string& load, const std::string& save) {
  Trained trained;
  test::on_jobs(run, [&](Job& job) {
    if (!load.empty()) restore(job, checkpoint::CheckpointReader::open(load), Restore::kResume);
    Trained mine;
    for (int i = 0; i < count; ++i) {
      const test::Curve one = test::train(job, 1);
      mine.curve.loss.push_back(one.loss[0]);
      mine.curve.grad_norm.push_back(one.grad_norm[0]);
      mine.consumed.push_back(job.counters.consumed_samples);
    }
    if (!save.empty()) {
      const auto result = job::save(job, save);
      EXPECT_TRUE(result.ok) << result.problem;
    }
    job.buffers().wait_for(job.parameters());
    for (const tensor::Parameter* p : job.parameters()) mine.values.push_back(p->value.detach().clone());
    if (job.ranks.rank() == 0) trained = std::move(mine);
  });
  return trained;
}

// 64 tokens are 8 samples: two steps of 4, then steps of 8.
TEST(BatchScheduleRun, EqualsARunThatResumesWithTheNextSize) {
  for (const test::Layout& layout : kScheduledLayouts) {
    SCOPED_TRACE(layout.name);
    const TempFolder folder;
    const Trained all = train_from(run_with(layout, "--step-batch-size-schedule 0:4,64:8 "), 4, "", "");
    EXPECT_EQ(all.consumed, (std::vector<std::int64_t>{4, 8, 16, 24}));
    const Trained first = train_from(run_with(layout, "--global-batch-size 4 "), 2, "", folder.path());
    const Trained second = train_from(run_with(layout, "--global-batch-size 8 "), 2, folder.path(), "");
    for (std::size_t i = 0; i < 4; ++i) {
      const test::Curve& part = i < 2 ? first.curve : second.curve;
      EXPECT_EQ(all.curve.loss[i], part.loss[i % 2]) << "step " << i + 1;
      EXPECT_EQ(all.curve.grad_norm[i], part.grad_norm[i % 2]) << "step " << i + 1;
    }
    ASSERT_EQ(all.values.size(), second.values.size());
    for (std::size_t i = 0; i < all.values.size(); ++i)
      EXPECT_TRUE(at::equal(all.values[i], second.values[i])) << i;
  }
}

// 2 + 2 * floor(consumed / 4): steps of 2, 2, 4, 6, 8, 8. The resumed run has another layout.
TEST(BatchScheduleRun, ResumesWithinTheRamp) {
  const std::string batches = "--global-batch-size 8 --rampup-batch-size 2 2 12 ";
  const Trained all = train_from(run_with(kScheduledLayouts[0], batches), 6, "", "");
  EXPECT_EQ(all.consumed, (std::vector<std::int64_t>{2, 4, 8, 14, 22, 30}));
  for (const std::size_t other : {1, 2}) {
    for (const int done : {1, 3}) {
      const TempFolder folder;
      train_from(run_with(kScheduledLayouts[other], batches), done, "", folder.path());
      const Trained rest = train_from(run_with(kScheduledLayouts[0], batches), 6 - done, folder.path(), "");
      for (std::size_t i = 0; i < rest.curve.loss.size(); ++i)
        EXPECT_NEAR(rest.curve.loss[i], all.curve.loss[i + static_cast<std::size_t>(done)], 1e-4)
            << kScheduledLayouts[other].name << ", " << done << " steps, then " << i + 1;
    }
  }
}

// 7 rounded down to a multiple of 2 ranks.
TEST(BatchScheduleRun, RoundedSizesConsumeRoundedSamples) {
  const Trained trained = train_from(
      run_with(kScheduledLayouts[1], "--global-batch-size 7 --decrease-batch-size-if-needed "), 2, "", "");
  EXPECT_EQ(trained.consumed, (std::vector<std::int64_t>{6, 12}));
  const Trained exact = train_from(run_with(kScheduledLayouts[1], "--global-batch-size 6 "), 2, "", "");
  EXPECT_EQ(trained.curve, exact.curve);
}

TEST(BatchScheduleRun, ReadsEverySampleOnceInOrder) {
  const config::Run run =
      run_with({"Dp2", 2, "--num-workers 2"}, "--step-batch-size-schedule 0:2,32:6,128:8 ");
  test::on_jobs(run, [&](Job& job) {
    const auto data = data::open_gpt_batches(run.data, run.training, {.vocab_size = 37, .eod = 36});
    job.counters.consumed_samples = 2;  // resumed
    TokenStream stream(*data[0], job, 2);
    std::vector<std::int64_t> sizes;
    for (int step = 0; step < 6; ++step) {
      const auto steps = stream.next();
      const int microbatches = job.num_microbatches();
      for (int m = 0; m < microbatches; ++m)
        EXPECT_EQ(steps.batch(m).at(tensor::Field::kSamples).item<std::int64_t>(),
                  job.counters.consumed_samples + 2 * m + job.data_rank());
      sizes.push_back(2 * microbatches);
      job.counters.consumed_samples += sizes.back();
    }
    EXPECT_EQ(sizes, (std::vector<std::int64_t>{2, 6, 6, 8, 8, 8}));
  });
}

TEST(BatchScheduleRun, EvaluationsHaveTheFinalSize) {
  for (const test::Layout& layout : {kScheduledLayouts[1], kScheduledLayouts[2]}) {
    test::on_jobs(run_with(layout, "--step-batch-size-schedule 0:2,64:8 "), [&](Job& job) {
      for (int i = 0; i < 2; ++i) {
        int calls = 0;
        job.evaluate(1, [&](int) {
          pipeline::Steps steps = test::steps_after(job, 0);
          steps.batch = [&calls, batch = steps.batch](int m) {
            ++calls;
            return batch(m);
          };
          return steps;
        });
        EXPECT_EQ(calls, 8 / job.data_ranks());
        test::train(job, 1);
      }
    });
  }
}

/// Mean loss of the first `samples` samples.
double evaluated_loss(const config::Run& run, std::int64_t samples) {
  double loss = 0;
  test::on_jobs(
      run,
      [&](Job& job) {
        const auto data = data::open_gpt_batches(run.data, run.training, {.vocab_size = 37, .eod = 36});
        const std::int64_t size = config::eval_batch_size(run.training);
        const auto batches = static_cast<int>((samples + size - 1) / size);
        const auto steps = [&](int i) {
          return evaluation_steps(*data[0], job, i * size, std::min(size, samples - i * size));
        };
        const double mine = job.evaluate(batches, steps).at("lm_loss");
        if (job.ranks.rank() == 0) loss = mine;
      },
      test::kFloat64);
  return loss;
}

// 16 samples as 4 x 4, 2 x 8 and 1 x 16.
TEST(BatchScheduleRun, EvaluationSizesGiveEqualLosses) {
  const double expected = evaluated_loss(run_with(kScheduledLayouts[0], "--global-batch-size 4 "), 16);
  for (const test::Layout& layout : kScheduledLayouts) {
    const std::string training = "--global-batch-size 4 ";
    EXPECT_NEAR(evaluated_loss(
                    run_with(layout, training + "--eval-global-batch-size 8 --eval-micro-batch-size 2 "), 16),
                expected, 1e-9)
        << layout.name;
    EXPECT_NEAR(evaluated_loss(run_with(layout, training + "--eval-global-batch-size 16 "), 16), expected,
                1e-9)
        << layout.name;
  }
}

// The last batch has 5 and 1 samples; in one layout each, a rank has padding rows only.
TEST(BatchScheduleRun, PartialEvaluationBatchesHaveTheLossOfTheirSamples) {
  const double expected =
      evaluated_loss(run_with(kScheduledLayouts[0], "--global-batch-size 4 --eval-global-batch-size 1 "), 13);
  EXPECT_GT(std::abs(evaluated_loss(run_with(kScheduledLayouts[0], "--global-batch-size 4 "), 12) - expected),
            1e-7)
      << "the last sample makes a difference";
  for (const test::Layout& layout : kScheduledLayouts)
    for (const char* sizes : {"--eval-global-batch-size 8 --eval-micro-batch-size 2 ", ""}) {
      const config::Run run = run_with(layout, std::string("--global-batch-size 4 ") + sizes);
      EXPECT_NEAR(evaluated_loss(run, 13), expected, 1e-9) << layout.name << " " << sizes;
    }
}

// Evaluations between steps change no step.
TEST(BatchScheduleRun, EvaluationSizesDoNotChangeTraining) {
  const config::Run plain = run_with(kScheduledLayouts[3], "--global-batch-size 4 ");
  const config::Run other = run_with(
      kScheduledLayouts[3], "--global-batch-size 4 --eval-global-batch-size 8 --eval-micro-batch-size 2 ");
  const test::Curve expected = test::train(plain, 2);
  test::on_jobs(other, [&](Job& job) {
    const auto data = data::open_gpt_batches(other.data, other.training, {.vocab_size = 37, .eod = 36});
    for (std::size_t i = 0; i < 2; ++i) {
      const test::Curve one = test::train(job, 1);
      EXPECT_EQ(one.loss[0], expected.loss[i]);
      job.evaluate(1, [&](int) { return evaluation_steps(*data[0], job, 0); });
    }
  });
}

TEST(BatchScheduleRun, OverriddenIterationCountsTheSamplesOfTheSchedule) {
  config::Run run = run_with(kScheduledLayouts[0], "--step-batch-size-schedule 0:4,64:8 ");
  run.checkpoint.override_ckpt_iteration = 4;
  const nlohmann::json state{{"iteration", 5}, {"consumed_samples", 40}, {"skipped", 2}};
  EXPECT_EQ(resumed_counters(state, run).consumed_samples, 24);
}

}  // namespace
}  // namespace colonnade::job
