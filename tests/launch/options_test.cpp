// What the launcher derives from the command of the ranks, and the settings that it refuses.
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

TEST(LaunchOptions, LogsGoToTheRunFolder) {
  EXPECT_EQ(log_dir_of_run({"colonnade", "pretrain", "gpt", "--save", "out/run"}), "out/run/logs");
  EXPECT_EQ(log_dir_of_run({"colonnade", "pretrain", "--save=out/run"}), "out/run/logs");
  EXPECT_EQ(log_dir_of_run({"colonnade", "pretrain"}), "");
  EXPECT_THAT(log_dir_of_now().string(), testing::StartsWith("logs/2"));
}

TEST(LaunchOptions, YamlFilesOfTheRanksCount) {
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
    EXPECT_THAT(error.what(), testing::HasSubstr("--nproc-per-node must be at least 1; got 0"));
    EXPECT_THAT(error.what(), testing::HasSubstr("--node-rank must be 0 to nnodes-1; got 2 of 2"));
    EXPECT_THAT(error.what(), testing::HasSubstr("--master-port"));
    EXPECT_THAT(error.what(), testing::HasSubstr("--max-restarts"));
    EXPECT_THAT(error.what(), testing::HasSubstr("something to start"));
  }
  EXPECT_NO_THROW(check({.nproc_per_node = 2, .command = {"x"}}));
}

/// What is wrong with the options; "" for nothing.
std::string fault_of(const Options& options) {
  try {
    check(options);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(LaunchOptions, TooManyRanksForTheCoresAreRefused) {
  const int most = 64 * usable_cores();
  EXPECT_EQ(fault_of({.nproc_per_node = most, .command = {"x"}}), "");
  EXPECT_THAT(fault_of({.nproc_per_node = most + 1, .command = {"x"}}),
              testing::HasSubstr("--nproc-per-node must be at most 64 for each core; got"));
}

/// The fault of `launch --max-restarts 2 -- pretrain gpt MORE`.
std::string restarting(const std::vector<std::string>& more, const std::string& verb = "pretrain") {
  Options options{.max_restarts = 2, .command = {"colonnade", verb, "gpt"}};
  options.command.insert(options.command.end(), more.begin(), more.end());
  return fault_of(options);
}

TEST(LaunchOptions, ARestartMustGoOnFromTheRunsOwnCheckpoints) {
  EXPECT_EQ(restarting({"--save", "m1", "--load", "m1"}), "");
  EXPECT_EQ(restarting({"--save", "./m1/", "--load", "m1/checkpoints"}), "");
  EXPECT_EQ(restarting({"--save", "m1", "--load", "m1", "--pretrained-checkpoint", "hf"}), "");
  EXPECT_EQ(restarting({"--save", "m1"}, "--no-verb-of-ours"), "") << "another program";
  EXPECT_EQ(restarting({"--hiden-size", "1"}), "") << "for the ranks to say";
  EXPECT_THAT(restarting({"--save", "m1"}),
              testing::HasSubstr("got --save m1 and no --load; write --load m1"));
  EXPECT_THAT(restarting({}), testing::HasSubstr("write --save DIR --load DIR"));
  EXPECT_THAT(restarting({"--save", "m1", "--load", "m0"}),
              testing::HasSubstr("write --load m1; the weights to begin with are named by "
                                 "--pretrained-checkpoint"));
  EXPECT_THAT(restarting({"--save", "m1", "--load", "m1", "--finetune"}),
              testing::HasSubstr("with --finetune; write --load m1 without --finetune; the weights"));
  EXPECT_THAT(restarting({"--save", "m1", "--load", "m1/checkpoints/step_00000002"}),
              testing::HasSubstr("write --load m1"));
}

}  // namespace
}  // namespace colonnade::launch
