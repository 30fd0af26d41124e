// The run folder: its config.yaml starts and resumes the run, and other folders are rejected
// before anything is written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "program.h"

namespace colonnade::e2e {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// Command of `last` steps of a small GPT in "run".
Words steps(int last, const Words& more = {}) {
  return small_gpt() + Words{"--eval-iters", "0", "--train-iters", std::to_string(last), "--save", "run"} +
         more;
}

/// Runs in `folder`.
Result pretrain(const TempFolder& folder, const Words& words) {
  return run(colonnade(words), {}, folder.path());
}

/// All files and folders below `folder`, sorted.
std::vector<std::string> all_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) names.push_back(entry.path().string());
  std::ranges::sort(names);
  return names;
}

TEST(ResumeFolders, ConfigYamlOfAStoppedRunResumesIt) {
  const TempFolder folder, whole, other;
  ASSERT_EQ(pretrain(whole, steps(4)).code, 0);
  Program program(colonnade(steps(4)), {{"COLONNADE_FAULT", "at=forward step=4"}}, folder.path());
  EXPECT_EQ(program.finish().code, 128 + 9);
  ASSERT_TRUE(fs::exists(folder / "run/checkpoints/step_00000002"));
  const Words file{"pretrain", "--config", (folder / "run/config.yaml").string()};
  const Result more = pretrain(other, file);
  EXPECT_EQ(more.code, 0) << more.text;
  EXPECT_THAT(more.text, HasSubstr("the run resumes after iteration 2"));
  EXPECT_THAT(iterations(folder / "run"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(differences(folder / "run/checkpoints/step_00000004", whole / "run/checkpoints/step_00000004"),
              ElementsAre());
  const Result again = pretrain(other, file);
  EXPECT_EQ(again.code, 0) << again.text;
  EXPECT_THAT(again.text, HasSubstr("the run is complete"));
  EXPECT_TRUE(fs::is_empty(other.path())) << "the file names its folder from any working directory";
}

TEST(ResumeFolders, ConfigYamlOfAMovedRunRequestsItsFolder) {
  const TempFolder folder;
  ASSERT_EQ(pretrain(folder, steps(2)).code, 0);
  fs::rename(folder / "run", folder / "moved");
  const Words file{"pretrain", "--config", "moved/config.yaml"};
  const Result refused = pretrain(folder, file);
  EXPECT_EQ(refused.code, 2) << refused.text;
  EXPECT_THAT(refused.text, HasSubstr("to resume there, add --save moved --load moved"));
  EXPECT_FALSE(fs::exists(folder / "run"));
  const Result more =
      pretrain(folder, file + Words{"--save", "moved", "--load", "moved", "--train-iters", "4"});
  EXPECT_EQ(more.code, 0) << more.text;
  EXPECT_THAT(iterations(folder / "moved"), ElementsAre(1, 2, 3, 4));
}

TEST(ResumeFolders, ConfigYamlOfARunWithoutCheckpointsStartsIt) {
  const TempFolder folder;
  Program program(colonnade(steps(2)), {{"COLONNADE_FAULT", "at=forward step=1"}}, folder.path());
  EXPECT_EQ(program.finish().code, 128 + 9);
  const Result begun = pretrain(folder, {"pretrain", "--config", "run/config.yaml"});
  EXPECT_EQ(begun.code, 0) << begun.text;
  EXPECT_THAT(iterations(folder / "run"), ElementsAre(1, 2));
}

TEST(ResumeFolders, FixForAUsedFolderWorks) {
  const TempFolder folder;
  ASSERT_EQ(pretrain(folder, steps(2)).code, 0);
  const Result refused = pretrain(folder, steps(4));
  EXPECT_EQ(refused.code, 2) << refused.text;
  EXPECT_THAT(refused.text, AllOf(HasSubstr("up to step 2 and no --load"),
                                  HasSubstr("add --load run to this command and keep --save")));
  const Result more = pretrain(folder, steps(4, {"--load", "run"}));
  EXPECT_EQ(more.code, 0) << more.text;
  EXPECT_THAT(iterations(folder / "run"), ElementsAre(1, 2, 3, 4));
}

TEST(ResumeFolders, StopPrintsHowToResumeTheRun) {
  const TempFolder folder;
  Words words = steps(4);
  words.erase(words.end() - 2, words.end());  // no --save
  const Result stopped =
      run(colonnade(words), {{"COLONNADE_FAULT", "at=forward step=2 signal=TERM"}}, folder.path());
  EXPECT_EQ(stopped.code, 5) << stopped.text;
  const std::string made = fs::directory_iterator(folder / "runs")->path().filename();
  EXPECT_THAT(stopped.text, HasSubstr(" pretrain --config runs/" + made + "/config.yaml\n"));
}

/// Expects --load to reject a folder with `names`, without writing into it.
void expect_rejected(const Words& names, const std::string& load, const std::string& words, const Words& more,
                     int code = 2) {
  const TempFolder folder, logs;
  for (const std::string& name : names) {
    fs::create_directories((folder / name).parent_path());
    write_text(folder / name, "{}");
  }
  const auto before = all_in(folder.path());
  for (const Words& command : {colonnade(steps(2, Words{"--load", load} + more)),
                               colonnade({"launch", "--log-dir", logs.path().string(), "--"}) +
                                   steps(2, Words{"--load", load} + more)}) {
    const Result result = run(command, {}, folder.path());
    EXPECT_EQ(result.code, code) << result.text;
    EXPECT_THAT(result.text,
                AllOf(HasSubstr("error: "), HasSubstr(words), Not(HasSubstr("a new run starts"))));
    EXPECT_EQ(all_in(folder.path()), before);
  }
}

TEST(ResumeFolders, OtherFoldersAreRejectedBeforeAnythingIsWritten) {
  const Words megatron{"mg/latest_checkpointed_iteration.txt", "mg/iter_0000010/.metadata"};
  constexpr int kData = 3;
  expect_rejected(megatron, "mg", "must hold an iteration or 'release'; got '{}'", {}, kData);
  expect_rejected(megatron, "mg/iter_0000010", "must name a checkpoint of Megatron with its tensors", {});
  expect_rejected({"hf/config.json", "hf/model.safetensors"}, "hf", "use --pretrained-checkpoint hf", {});
  expect_rejected({"run/config.yaml"}, "run/config.yaml", "got the file run/config.yaml", {});
  expect_rejected({"old/weights.pt"}, "old", "got old without a checkpoint but with weights.pt", {});
}

TEST(ResumeFolders, CompleteCheckpointThatLatestDoesNotNameIsReportedAsSuch) {
  const TempFolder folder;
  fs::create_directories(folder / "run/checkpoints/latest");  // a file must be created there
  const Result result = pretrain(folder, steps(2));
  EXPECT_EQ(result.code, 1) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr("saving the checkpoint of iteration 2 failed"),
                                 HasSubstr("step_00000002 is complete, but `latest` may not point to it"),
                                 Not(HasSubstr("not written"))));
}

}  // namespace
}  // namespace colonnade::e2e
