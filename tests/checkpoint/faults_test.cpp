// Saves that are killed or cannot write always leave an intact checkpoint behind.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>

#include "checkpoint/fixtures.h"
#include "colonnade/base/error.h"
#include "colonnade/checkpoint/verify.h"

namespace colonnade::checkpoint {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace)
using testing::HasSubstr;

/// Runs `body` in a child process. Returns its exit code, or 128 + the signal that ended it.
template <typename Body>
int in_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      body();
    } catch (...) {
      ::_exit(99);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool nothing_staged(const fs::path& run) { return leftovers(run / "checkpoints").empty(); }

TEST(Faults, KilledAtAnyPointLeavesAnIntactCheckpointAndTheNextSaveWorks) {
  for (const std::int64_t step : {2, 1})  // a new step, and the same step over the old one
    for (const std::string_view point : kSavePoints) {
      const TempFolder run;
      ASSERT_TRUE(save_toy(run, 1).ok);
      const int code = in_child([&] {
        SaveOptions options;
        options.on_point = [&](std::string_view here) {
          if (here == point) ::kill(::getpid(), SIGKILL);
        };
        save(run, step, snapshot_of({}, 0, step, true), comm::Group(), options);
      });
      ASSERT_EQ(code, 128 + SIGKILL) << point;  // proves that the point exists
      const auto found = find_checkpoint(run);
      ASSERT_TRUE(found) << point;
      EXPECT_TRUE(found->skipped.empty()) << point;
      EXPECT_EQ(found->step, point == "latest" ? step : 1) << point;
      EXPECT_TRUE(has_values(CheckpointReader::open_native(found->folder), {}, found->step)) << point;
      EXPECT_TRUE(verify(run).at("ok")) << point;
      ASSERT_TRUE(save_toy(run, 3).ok) << point;
      EXPECT_EQ(find_checkpoint(run)->step, 3) << point;
      EXPECT_TRUE(nothing_staged(run)) << point;
    }
}

TEST(Faults, FailureOnAnyRankIsReportedToAllAndLeavesTheOldCheckpoint) {
  const Layout grid = layouts()[3];
  for (int bad = 0; bad < 4; ++bad)
    for (const std::string_view point : {"begin", "staged", "writing", "written", "manifest", "rename"}) {
      if (bad != 0 && (point == "manifest" || point == "rename")) continue;  // reached by rank 0 only
      const TempFolder run;
      ASSERT_TRUE(save_toy(run, 1, grid).ok);
      comm::run_ranks(4, [&](comm::Communicators& ranks) {
        SaveOptions options;
        options.on_point = [&](std::string_view here) {
          if (here == point && ranks.rank() == bad) throw Error("the disk is gone");
        };
        const SaveResult result =
            save(run, 2, snapshot_of(grid, ranks.rank(), 2, true), ranks.world(), options);
        EXPECT_FALSE(result.ok);
        EXPECT_EQ(result.problem, fmt::format("rank {}: the disk is gone", bad));
        EXPECT_EQ(result.code, kExitFailed);
      });
      EXPECT_TRUE(nothing_staged(run)) << point;
      EXPECT_EQ(find_checkpoint(run)->step, 1) << point;
      ASSERT_TRUE(save_toy(run, 2, grid).ok);
      EXPECT_EQ(find_checkpoint(run)->step, 2);
    }
}

TEST(Faults, FullDiskIsReportedAndTheRunCanContinue) {
  const TempFolder run;
  ASSERT_TRUE(save_toy(run, 1).ok);
  EXPECT_EQ(in_child([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              const rlimit small{1000, 1000};  // file size limit: simulates a full disk for one process
              ::setrlimit(RLIMIT_FSIZE, &small);
              const SaveResult result = save(run, 2, snapshot_of({}, 0, 2, true), comm::Group());
              if (result.ok || result.problem.find("model.safetensors") == std::string::npos) ::_exit(1);
              if (result.problem.find("File too large") == std::string::npos) ::_exit(2);
              if (result.problem.find(" free of ") == std::string::npos) ::_exit(3);
              if (result.code != kExitSettings) ::_exit(4);
            }),
            0);
  EXPECT_TRUE(nothing_staged(run));
  EXPECT_EQ(find_checkpoint(run)->step, 1);
}

TEST(Faults, FolderThatCannotBeCreatedIsReported) {
  const TempFolder run;
  write_raw(run.path() / "checkpoints", "a file where a folder is needed");
  const SaveResult result = save_toy(run, 1, layouts()[1]);
  EXPECT_FALSE(result.ok);
  EXPECT_THAT(result.problem, HasSubstr("checkpoints"));
  EXPECT_THAT(result.problem, HasSubstr("rank 0"));
}

TEST(Faults, FailureAfterPublishingReportsACompleteCheckpoint) {
  const TempFolder run;
  ASSERT_TRUE(save_toy(run, 1).ok);
  SaveOptions options;
  options.on_point = [](std::string_view here) {
    if (here == "renamed") throw Error("no space left");
  };
  const SaveResult result = save_toy(run, 2, {}, options);
  EXPECT_FALSE(result.ok);
  EXPECT_THAT(result.problem,
              HasSubstr("step_00000002 is complete, but `latest` may not point to it: no space left"));
  EXPECT_EQ(find_checkpoint(run)->step, 1);
  EXPECT_EQ(find_checkpoint(run, 2)->step, 2);
}

TEST(Faults, EveryPointIsReachedInOrder) {
  const TempFolder run;
  std::vector<std::string> reached;
  SaveOptions options;
  options.on_point = [&](std::string_view here) { reached.emplace_back(here); };
  ASSERT_TRUE(save_toy(run, 1, {}, options).ok);
  EXPECT_EQ(reached, std::vector<std::string>(std::begin(kSavePoints), std::end(kSavePoints)));
}

}  // namespace
}  // namespace colonnade::checkpoint
