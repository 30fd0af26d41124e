// Options derived from the ranks' command, and rejected options.
#include "colonnade/launch/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "colonnade/base/error.h"
#include "colonnade/launch/process.h"

namespace colonnade::launch {
namespace {

TEST(LaunchOptions, LogFolderIsInTheRunFolder) {
  EXPECT_EQ(log_dir_of_run({"colonnade", "pretrain", "gpt", "--save", "out/run"}), "out/run/logs");
  EXPECT_EQ(log_dir_of_run({"colonnade", "pretrain", "--save=out/run"}), "out/run/logs");
  EXPECT_EQ(log_dir_of_run({"colonnade", "pretrain"}), "");
  EXPECT_THAT(log_dir_of_now().string(), testing::StartsWith("logs/2"));
}

TEST(LaunchOptions, ReadsYamlFilesOfTheRanks) {
  const auto file =
      std::filesystem::temp_directory_path() / ("options_test_" + std::to_string(::getpid()) + ".yaml");
  std::ofstream(file) << "save: out/run\ndistributed_timeout_minutes: 60\n";
  const std::vector<std::string> command{"colonnade", "pretrain", "gpt", "--config", file.string()};
  EXPECT_EQ(log_dir_of_run(command), "out/run/logs");
  EXPECT_EQ(default_hang_timeout_s(command), 3630);
  std::vector<std::string> more = command;
  more.insert(more.end(), {"--save", "other", "--distributed-timeout-minutes", "2"});
  EXPECT_EQ(log_dir_of_run(more), "other/logs");
  EXPECT_EQ(default_hang_timeout_s(more), 150);
  std::filesystem::remove(file);
  EXPECT_EQ(default_hang_timeout_s(command), 630) << "the ranks report the missing file";
}

TEST(LaunchOptions, TheHangTimeoutFollowsTheRanksTimeout) {
  EXPECT_EQ(default_hang_timeout_s({"x"}), 630);
  EXPECT_EQ(default_hang_timeout_s({"x", "--distributed-timeout-minutes", "2"}), 150);
  EXPECT_EQ(default_hang_timeout_s({"x", "--distributed_timeout_minutes=0.5"}), 60);
}

TEST(LaunchOptions, ReportsAllErrorsAtOnce) {
  const Options wrong{.nproc_per_node = 0, .nnodes = 2, .node_rank = 2, .max_restarts = -1};
  try {
    check(wrong);
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("--nproc-per-node must be at least 1; got 0"));
    EXPECT_THAT(error.what(), testing::HasSubstr("--node-rank must be 0 to nnodes-1; got 2 of 2"));
    EXPECT_THAT(error.what(), testing::HasSubstr("--master-port"));
    EXPECT_THAT(error.what(), testing::HasSubstr("--max-restarts"));
    EXPECT_THAT(error.what(), testing::HasSubstr("launch needs a command to start"));
  }
  EXPECT_NO_THROW(check({.nproc_per_node = 2, .command = {"x"}}));
}

/// Error in the options; "" if valid.
std::string error_of(const Options& options) {
  try {
    check(options);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(LaunchOptions, TooManyRanksPerCoreAreRejected) {
  const int most = 64 * usable_cores();
  EXPECT_EQ(error_of({.nproc_per_node = most, .command = {"x"}}), "");
  EXPECT_THAT(error_of({.nproc_per_node = most + 1, .command = {"x"}}),
              testing::HasSubstr("--nproc-per-node must be at most 64 per core; got"));
}

/// Error of `launch --max-restarts 2 -- pretrain gpt MORE`.
std::string restart_error(const std::vector<std::string>& more, const std::string& verb = "pretrain") {
  Options options{.max_restarts = 2, .command = {"colonnade", verb, "gpt"}};
  options.command.insert(options.command.end(), more.begin(), more.end());
  return error_of(options);
}

TEST(LaunchOptions, RestartMustResumeFromTheRunsOwnCheckpoints) {
  EXPECT_EQ(restart_error({"--save", "m1", "--load", "m1"}), "");
  EXPECT_EQ(restart_error({"--save", "./m1/", "--load", "m1/checkpoints"}), "");
  EXPECT_EQ(restart_error({"--save", "m1", "--load", "m1", "--pretrained-checkpoint", "hf"}), "");
  EXPECT_EQ(restart_error({"--save", "m1"}, "--no-verb-of-ours"), "") << "another program";
  EXPECT_EQ(restart_error({"--hiden-size", "1"}), "") << "reported by the ranks";
  EXPECT_THAT(restart_error({"--save", "m1"}),
              testing::HasSubstr("got --save m1 and no --load; write --load m1"));
  EXPECT_THAT(restart_error({}), testing::HasSubstr("write --save DIR --load DIR"));
  EXPECT_THAT(restart_error({"--save", "m1", "--load", "m0"}),
              testing::HasSubstr("write --load m1; initial weights belong in "
                                 "--pretrained-checkpoint"));
  EXPECT_THAT(restart_error({"--save", "m1", "--load", "m1", "--finetune"}),
              testing::HasSubstr("with --finetune; write --load m1 without --finetune; initial weights"));
  EXPECT_THAT(restart_error({"--save", "m1", "--load", "m1/checkpoints/step_00000002"}),
              testing::HasSubstr("write --load m1"));
}

}  // namespace
}  // namespace colonnade::launch
