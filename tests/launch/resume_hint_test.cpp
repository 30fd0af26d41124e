// Summary after a lost rank: with a checkpoint, without one, and for other programs.
#include "colonnade/launch/resume_hint.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

namespace colonnade::launch {
namespace {

namespace fs = std::filesystem;

/// A run folder with a config.yaml.
class RankLossSummary : public testing::Test {
 protected:
  RankLossSummary() {
    std::string name = (fs::temp_directory_path() / "way on_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    write("config.yaml");
  }
  ~RankLossSummary() override { fs::remove_all(folder_); }
  void write(const fs::path& name, const std::string& text = "") const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  fs::path folder_;
  const CommandLine line_{
      {"colonnade", "launch", "--nproc-per-node", "2", "--"}, "colonnade", true, "pretrain"};
};

TEST_F(RankLossSummary, NamesTheNewestCheckpointAndTheResumeCommand) {
  write("checkpoints/step_00000010/manifest.json");
  write("checkpoints/latest", "step_00000010\n");
  EXPECT_EQ(
      rank_loss_summary(line_, {folder_, ""}),
      "stopped by the loss of a rank\n  checkpoint  " + folder_.string() +
          "/checkpoints/step_00000010\n  resume      colonnade launch --nproc-per-node 2 -- pretrain --config '" +
          folder_.string() + "/config.yaml'\n");
}

TEST_F(RankLossSummary, ContainsTheRowsOfTheRunSummary) {
  write("checkpoints/step_00000010/manifest.json");
  write("checkpoints/latest", "step_00000010\n");
  write("report.html");
  write("metrics.jsonl", "{\"iteration\":11,\"lm_loss\":2.718281828,\"lr\":1}\n{\"iteration\":12,\"lm_lo");
  const AnnouncedRun run = parse_announcement(folder_.string() + "\n  evaluate    it\n");
  EXPECT_EQ(run.folder, folder_);
  const std::string text = rank_loss_summary(line_, run);
  EXPECT_NE(text.find("  loss        2.71828 after iteration 11\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  report      " + folder_.string() + "/report.html\n"), std::string::npos);
  EXPECT_TRUE(text.ends_with("\n  evaluate    it\n"));
  write("checkpoints/latest");
  EXPECT_EQ(rank_loss_summary(line_, run).find("evaluate"), std::string::npos) << "nothing to evaluate";
}

TEST_F(RankLossSummary, ReportsAMissingCheckpoint) {
  for (const char* latest : {"", "step_00000010\n"}) {
    if (*latest != '\0') write("checkpoints/latest", latest);
    const std::string text = rank_loss_summary(line_, {folder_, ""});
    EXPECT_NE(
        text.find("  checkpoint  none in " + folder_.string() + ": the run starts from the beginning\n"),
        std::string::npos);
    EXPECT_NE(text.find("  run again   colonnade launch"), std::string::npos);
  }
}

TEST_F(RankLossSummary, IsEmptyIfTheRunCannotBeResumed) {
  EXPECT_EQ(rank_loss_summary(line_, {}), "");
  EXPECT_EQ(rank_loss_summary(line_, {folder_ / "other", ""}), "") << "no run started there";
  CommandLine other = line_;
  other.verb = "--steps";
  EXPECT_EQ(rank_loss_summary(other, {folder_, ""}), "") << "another program";
  other = line_;
  other.start.clear();
  EXPECT_EQ(rank_loss_summary(other, {folder_, ""}), "") << "launch command unknown";
}

}  // namespace
}  // namespace colonnade::launch
