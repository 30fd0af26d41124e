// Runs that end before their last iteration. Runs of the executable are in tests/e2e.
#include "colonnade/train/loop.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "checkpoint/fixtures.h"
#include "colonnade/base/error.h"
#include "colonnade/record/metrics.h"
#include "job/runs.h"
#include "support/vectors.h"

namespace colonnade::train {
namespace {

namespace fs = std::filesystem;

struct Ended {
  int code = -1;
  std::vector<std::int64_t> steps;
  std::vector<record::StepRecord> records;
};

/// Runs three steps with a limit of one minute, started `earlier`.
Ended run_started(std::chrono::seconds earlier, const fs::path& folder, const std::string& more = {}) {
  const config::Run run = test::settings(
      1,
      test::words("--num-layers 1 --hidden-size 16 --num-attention-heads 2 --vocab-size 1025 --seq-length 8 "
                  "--max-position-embeddings 8 --hidden-dropout 0 --attention-dropout 0 --micro-batch-size 2 "
                  "--global-batch-size 2 --train-iters 3 --eval-iters 0 --exit-duration-in-mins 1 "
                  "--save-interval 3 --save " +
                  folder.string() + more),
      [&](config::Run& r) {
        r.data.mock_data = false;
        r.data.data_path = {test::vectors() + "/indexed/gpt_uint16"};
        r.data.data_cache_path = folder / "cache";
      });
  Ended ended;
  comm::run_ranks(run.parallel, [&](comm::Communicators& ranks) {
    StopSignals stop;
    ended.code = pretrain({run, {}, ranks}, stop, std::chrono::steady_clock::now() - earlier);
  });
  ended.records = record::read_steps(folder / "metrics.jsonl");
  for (const record::StepRecord& record : ended.records) ended.steps.push_back(record.iteration);
  return ended;
}

TEST(Loop, SavesAndEndsAtItsTimeLimit) {
  const checkpoint::test::TempFolder folder;
  const Ended late = run_started(std::chrono::seconds(61), folder.path() / "late");
  EXPECT_EQ(late.code, kExitStopped);
  EXPECT_THAT(late.steps, testing::ElementsAre(1));
  EXPECT_TRUE(fs::exists(folder.path() / "late/checkpoints/step_00000001"));
  const Ended early = run_started(std::chrono::seconds(0), folder.path() / "early");
  EXPECT_EQ(early.code, kExitDone);
  EXPECT_THAT(early.steps, testing::ElementsAre(1, 2, 3));
}

// 16 tokens are two samples: steps of 1, 1 and 2 samples. Iterations of the schedule count as final batches,
// so that the learning rate of 0.001 falls linearly over 3 x 2 samples.
TEST(Loop, GrowsTheBatchSize) {
  const checkpoint::test::TempFolder folder;
  const Ended ended = run_started(std::chrono::seconds(0), folder.path(),
                                  " --micro-batch-size 1 --step-batch-size-schedule 0:1,16:2");
  ASSERT_THAT(ended.steps, testing::ElementsAre(1, 2, 3));
  const std::array<std::int64_t, 3> sizes{1, 1, 2}, consumed{1, 2, 4};
  for (std::size_t i = 0; i < 3; ++i) {
    const record::StepRecord& r = ended.records[i];
    EXPECT_EQ(r.global_batch_size, sizes.at(i));
    EXPECT_EQ(r.consumed_samples, consumed.at(i));
    EXPECT_EQ(r.consumed_tokens, 8 * consumed.at(i));
    const auto before = static_cast<double>(consumed.at(i) - sizes.at(i));
    EXPECT_NEAR(r.learning_rate, 0.001 * (1 - before / 6), 1e-12);
    EXPECT_NEAR(r.tokens_per_second * r.step_ms / 1000, static_cast<double>(8 * sizes.at(i)), 1e-6);
  }
}

// A learning rate of 1e-12 changes no fp32 weight, so that losses depend on the data only.
TEST(Loop, SkipsIterationsWithTheirData) {
  const checkpoint::test::TempFolder folder;
  const auto records = [&](const char* name, const char* flags) {
    return run_started(std::chrono::seconds(0), folder.path() / name, flags).records;
  };
  const auto all = records("all", " --lr 1e-12"),
             fixed = records("fixed", " --lr 1e-12 --iterations-to-skip 2");
  ASSERT_THAT(fixed, testing::SizeIs(3));
  EXPECT_EQ(fixed[0].lm_loss, all[0].lm_loss);
  EXPECT_TRUE(fixed[1].skipped && std::isnan(fixed[1].lm_loss) && std::isnan(fixed[1].grad_norm));
  EXPECT_EQ(fixed[1].consumed_samples, 4);
  EXPECT_EQ(fixed[1].tokens_per_second, 0);
  EXPECT_FALSE(fixed[2].skipped);
  EXPECT_EQ(fixed[2].lm_loss, all[2].lm_loss);
  EXPECT_NE(fixed[2].lm_loss, all[1].lm_loss);
  const auto trained = records("trained", ""), skipping = records("skipping", " --iterations-to-skip 2 7");
  EXPECT_NE(skipping[2].lm_loss, trained[2].lm_loss) << "one update fewer";
  EXPECT_EQ(skipping[2].learning_rate, skipping[1].learning_rate);
  EXPECT_EQ(skipping[2].learning_rate, trained[1].learning_rate);
  EXPECT_TRUE(fs::exists(folder.path() / "skipping/checkpoints/step_00000003"));
}

/// Four equal experts, all of which are selected, compute the function of the dense MLP; the run starts at
/// step 1.
TEST(Loop, UpcyclesADenseCheckpoint) {
  const checkpoint::test::TempFolder folder;
  const fs::path dense = folder.path() / "dense";
  ASSERT_EQ(run_started(std::chrono::seconds(0), dense).code, kExitDone);
  const Ended same = run_started(std::chrono::seconds(0), folder.path() / "same",
                                 " --pretrained-checkpoint " + dense.string());
  const Ended upcycled =
      run_started(std::chrono::seconds(0), folder.path() / "upcycled",
                  " --num-experts 4 --moe-router-topk 4 --moe-use-upcycling --load " + dense.string());
  EXPECT_EQ(upcycled.code, kExitDone);
  ASSERT_THAT(upcycled.steps, testing::ElementsAre(1, 2, 3));
  EXPECT_NEAR(upcycled.records[0].lm_loss, same.records[0].lm_loss, 1e-5 * same.records[0].lm_loss);
}

// 16 tokens, each routed to two experts.
TEST(Loop, RecordsTokensPerExpert) {
  const checkpoint::test::TempFolder folder;
  const Ended ended = run_started(std::chrono::seconds(0), folder.path(),
                                  " --num-experts 4 --moe-router-topk 2 --log-interval 2");
  ASSERT_THAT(ended.steps, testing::ElementsAre(1, 2, 3));
  EXPECT_THAT(ended.records[0].layer_counts, testing::IsEmpty());
  for (const std::size_t shown : {1, 2}) {
    const auto& counts = ended.records[shown].layer_counts;
    ASSERT_THAT(counts, testing::ElementsAre(testing::Key("tokens_per_expert")));
    const auto& layers = counts[0].second;
    ASSERT_THAT(layers, testing::ElementsAre(testing::SizeIs(4)));
    EXPECT_EQ(std::accumulate(layers[0].begin(), layers[0].end(), std::int64_t{0}), 32);
  }
}

}  // namespace
}  // namespace colonnade::train
