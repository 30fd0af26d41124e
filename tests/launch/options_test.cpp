// What the launcher derives from the command of the ranks, and the settings that it refuses.
#include "colonnade/launch/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/base/error.h"

namespace colonnade::launch {
namespace {

TEST(LaunchOptions, LogsGoToTheRunFolder) {
  EXPECT_EQ(default_log_dir({"colonnade", "pretrain", "gpt", "--save", "out/run"}), "out/run/logs");
  EXPECT_EQ(default_log_dir({"colonnade", "pretrain", "--save=out/run"}), "out/run/logs");
  EXPECT_THAT(default_log_dir({"colonnade", "pretrain"}).string(), testing::StartsWith("logs/2"));
}

TEST(LaunchOptions, TheHangTimeoutFollowsTheRanksTimeout) {
  EXPECT_EQ(default_hang_timeout_s({"x"}), 630);
  EXPECT_EQ(default_hang_timeout_s({"x", "--distributed-timeout-minutes", "2"}), 150);
  EXPECT_EQ(default_hang_timeout_s({"x", "--distributed_timeout_minutes=0.5"}), 60);
}

TEST(LaunchOptions, AllThatIsWrongIsSaidAtOnce) {
  const Options wrong{.nproc_per_node = 0, .nnodes = 2, .node_rank = 2, .max_restarts = -1};
  try {
    check(wrong);
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("--nproc-per-node: must be at least 1; got 0"));
    EXPECT_THAT(error.what(), testing::HasSubstr("--node-rank: must be 0 to nnodes-1; got 2 of 2"));
    EXPECT_THAT(error.what(), testing::HasSubstr("--master-port"));
    EXPECT_THAT(error.what(), testing::HasSubstr("--max-restarts"));
    EXPECT_THAT(error.what(), testing::HasSubstr("something to start"));
  }
  EXPECT_NO_THROW(check({.nproc_per_node = 2, .command = {"x"}}));
}

}  // namespace
}  // namespace colonnade::launch
