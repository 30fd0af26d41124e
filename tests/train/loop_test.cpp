// When a run ends before its last iteration. Whole runs of the executable are in tests/e2e.
#include "colonnade/train/loop.h"

#include <gmock/gmock.h>

#include "checkpoint/fixtures.h"
#include "colonnade/base/error.h"
#include "colonnade/train/metrics.h"
#include "job/runs.h"

namespace colonnade::train {
namespace {

namespace fs = std::filesystem;

struct Ended {
  int code = -1;
  std::vector<std::int64_t> steps;
};

/// A run of three steps that may take a minute and began `earlier`.
Ended run_begun(std::chrono::seconds earlier, const fs::path& folder) {
  const config::Run run = test::settings(
      1,
      test::words("--num-layers 1 --hidden-size 16 --num-attention-heads 2 --vocab-size 1025 --seq-length 8 "
                  "--max-position-embeddings 8 --hidden-dropout 0 --attention-dropout 0 --micro-batch-size 2 "
                  "--global-batch-size 2 --train-iters 3 --eval-iters 0 --exit-duration-in-mins 1 "
                  "--save-interval 3 --save " +
                  folder.string()),
      [&](config::Run& r) {
        r.data.mock_data = false;
        r.data.data_path = {COLONNADE_VECTORS "/indexed/gpt_uint16"};
        r.data.data_cache_path = folder / "cache";
      });
  Ended ended;
  comm::run_ranks(run.parallel, [&](comm::Communicators& ranks) {
    StopSignals stop;
    ended.code = pretrain({run, {}, ranks}, stop, std::chrono::steady_clock::now() - earlier);
  });
  for (const StepRecord& record : read_steps(folder / "metrics.jsonl"))
    ended.steps.push_back(record.iteration);
  return ended;
}

TEST(Loop, SavesAndEndsWhenItsMinutesAreOver) {
  const checkpoint::test::TempFolder folder;
  const Ended late = run_begun(std::chrono::seconds(61), folder.path() / "late");
  EXPECT_EQ(late.code, kExitStopped);
  EXPECT_THAT(late.steps, testing::ElementsAre(1));
  EXPECT_TRUE(fs::exists(folder.path() / "late/checkpoints/step_00000001"));
  const Ended early = run_begun(std::chrono::seconds(0), folder.path() / "early");
  EXPECT_EQ(early.code, kExitDone);
  EXPECT_THAT(early.steps, testing::ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace colonnade::train
