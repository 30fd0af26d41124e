// What the launcher derives from the command of the ranks, and the settings that it refuses.
#include "colonnade/launch/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "colonnade/base/error.h"

namespace colonnade::launch {
namespace {

TEST(LaunchOptions, LogsGoToTheRunFolder) {
  EXPECT_EQ(default_log_dir({"colonnade", "pretrain", "gpt", "--save", "out/run"}), "out/run/logs");
  EXPECT_EQ(default_log_dir({"colonnade", "pretrain", "--save=out/run"}), "out/run/logs");
  EXPECT_THAT(default_log_dir({"colonnade", "pretrain"}).string(), testing::StartsWith("logs/2"));
}

TEST(LaunchOptions, YamlFilesOfTheRanksCount) {
  const auto file =
      std::filesystem::temp_directory_path() / ("options_test_" + std::to_string(::getpid()) + ".yaml");
  std::ofstream(file) << "save: out/run\ndistributed_timeout_minutes: 60\n";
  const std::vector<std::string> command{"colonnade", "pretrain", "gpt", "--config", file.string()};
  EXPECT_EQ(default_log_dir(command), "out/run/logs");
  EXPECT_EQ(default_hang_timeout_s(command), 3630);
  std::vector<std::string> more = command;
  more.insert(more.end(), {"--save", "other", "--distributed-timeout-minutes", "2"});
  EXPECT_EQ(default_log_dir(more), "other/logs");
  EXPECT_EQ(default_hang_timeout_s(more), 150);
  std::filesystem::remove(file);
  EXPECT_EQ(default_hang_timeout_s(command), 630) << "that the file is missing is for the ranks to say";
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
