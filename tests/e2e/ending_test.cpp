// The summary at the end of a run, whose commands can be run as printed: after the last step, after
// a stop, and after the loss of a rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

#include "program.h"
#include "support/vectors.h"

namespace colonnade::e2e {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// small_gpt() with a text tokenizer, saved in `my run` of the working folder. Its schedule ends with the
/// run.
Words text_gpt(int steps) {
  Words words = small_gpt();
  const auto decay = std::ranges::find(words, "--lr-decay-iters");
  words.erase(decay, decay + 2);
  words = words + Words{"--tokenizer-type=HuggingFaceTokenizer", "--tokenizer-model",
                        test::vectors() + "/tokenizers/gpt2_bpe.json", "--vocab-size=2048", "--save=my run"};
  return words + Words{"--train-iters", std::to_string(steps)};
}

/// `colonnade launch` of two tensor-parallel ranks.
Words two_ranks(const Words& words) {
  return colonnade({"launch", "--nproc-per-node=2", "--log-dir=the logs", "--"}) + words +
         Words{"--tensor-model-parallel-size=2"};
}

/// Value of the row `name` in the summary; expects exactly one such row.
std::string row(const std::string& text, const std::string& name) {
  const std::string beginning = "\n  " + name + std::string(12 - name.size(), ' ');
  const std::size_t at = text.find(beginning);
  EXPECT_NE(at, std::string::npos) << name << " in\n" << text;
  if (at == std::string::npos) return "false";
  EXPECT_EQ(text.find(beginning, at + 1), std::string::npos) << name << " is duplicated";
  const std::size_t begin = at + beginning.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

Result as_printed(const std::string& command, const TempFolder& folder) {
  return run({"sh", "-c", command}, {}, folder.path());
}

TEST(RunEnds, CommandsOfACompleteRunRunAsPrinted) {
  const TempFolder folder;
  const Result done = run(two_ranks(text_gpt(2)), {}, folder.path());
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_THAT(done.text, HasSubstr("\ncomplete after iteration 2 of 2\n"));
  EXPECT_EQ(row(done.text, "checkpoint"), "my run/checkpoints/step_00000002");
  EXPECT_TRUE(std::filesystem::exists(folder / row(done.text, "report")));
  EXPECT_NEAR(std::stod(row(done.text, "loss")),
              metrics(folder / "my run").back().at("lm_loss").get<double>(), 1e-3);

  const Result evaluated = as_printed(row(done.text, "evaluate"), folder);
  EXPECT_EQ(evaluated.code, 0) << evaluated.text;
  EXPECT_THAT(evaluated.text, HasSubstr("perplexity"));
  const Result generated = as_printed(row(done.text, "generate"), folder);
  EXPECT_EQ(generated.code, 0) << generated.text;
  EXPECT_THAT(generated.text, HasSubstr("Once upon a time"));
  const std::string resume = row(done.text, "resume");
  EXPECT_THAT(resume,
              AllOf(HasSubstr(" launch --nproc-per-node=2 '--log-dir=the logs' -- pretrain --config "),
                    Not(HasSubstr("tensor-model"))));
  const Result longer = as_printed(resume, folder);
  EXPECT_EQ(longer.code, 0) << longer.text;
  EXPECT_THAT(iterations(folder / "my run"), ElementsAre(1, 2, 3, 4));
}

TEST(RunEnds, StopPrintsHowToResume) {
  const TempFolder folder;
  Program program(two_ranks(text_gpt(4)), {{"COLONNADE_FAULT", "at=losses step=2 rank=0 sleep=1"}},
                  folder.path());
  ASSERT_TRUE(program.wait_until([&] { return !iterations(folder / "my run").empty(); }));
  program.send(SIGINT);
  const Result stopped = program.finish();
  ASSERT_EQ(stopped.code, 5) << stopped.text;
  EXPECT_THAT(stopped.text, HasSubstr("\nstopped after iteration 2 of 4\n"));
  EXPECT_EQ(row(stopped.text, "checkpoint"), "my run/checkpoints/step_00000002");
  row(stopped.text, "evaluate");
  row(stopped.text, "generate");
  const Result resumed = as_printed(row(stopped.text, "resume"), folder);
  EXPECT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_THAT(iterations(folder / "my run"), ElementsAre(1, 2, 3, 4));
}

TEST(RunEnds, LauncherPrintsHowToResumeWhenARankIsLost) {
  const TempFolder folder;
  const Result lost =
      run(two_ranks(text_gpt(4)), {{"COLONNADE_FAULT", "at=forward step=4 rank=1"}}, folder.path());
  ASSERT_EQ(lost.code, 4) << lost.text;
  EXPECT_THAT(lost.text, HasSubstr("\nstopped by the loss of a rank\n"));
  EXPECT_EQ(row(lost.text, "checkpoint"), "my run/checkpoints/step_00000002");
  EXPECT_THAT(row(lost.text, "loss"), HasSubstr(" after iteration "));
  EXPECT_TRUE(std::filesystem::exists(folder / row(lost.text, "report")));
  row(lost.text, "generate");
  const Result evaluated = as_printed(row(lost.text, "evaluate"), folder);
  EXPECT_EQ(evaluated.code, 0) << evaluated.text;
  const Result resumed = as_printed(row(lost.text, "resume"), folder);
  EXPECT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_THAT(resumed.text, HasSubstr("the run resumes after iteration 2"));
  EXPECT_THAT(iterations(folder / "my run"), ElementsAre(1, 2, 3, 4));
}

TEST(RunEnds, WithoutACheckpointALostRunStartsFromScratch) {
  const TempFolder folder;
  const Result lost =
      run(two_ranks(text_gpt(2)), {{"COLONNADE_FAULT", "at=forward step=1 rank=1"}}, folder.path());
  ASSERT_EQ(lost.code, 4) << lost.text;
  EXPECT_THAT(row(lost.text, "checkpoint"), StartsWith("none in my run"));
  const Result again = as_printed(row(lost.text, "run again"), folder);
  EXPECT_EQ(again.code, 0) << again.text;
  EXPECT_THAT(iterations(folder / "my run"), ElementsAre(1, 2));
}

TEST(RunEnds, RunWithoutTextAndWithoutASaveHasFewerLines) {
  const TempFolder folder;
  Words words = small_gpt() + Words{"--train-iters=2", "--save=run"};
  const Result numbers = run(colonnade(words), {}, folder.path());
  EXPECT_EQ(numbers.code, 0) << numbers.text;
  EXPECT_THAT(numbers.text, Not(HasSubstr("  generate ")));
  EXPECT_EQ(as_printed(row(numbers.text, "evaluate"), folder).code, 0);
  words = small_gpt();
  words.resize(words.size() - 2);  // no --save-interval
  const Result unsaved = run(colonnade(words + Words{"--train-iters=1"}), {}, folder.path());
  EXPECT_EQ(unsaved.code, 0) << unsaved.text;
  EXPECT_THAT(row(unsaved.text, "checkpoint"), StartsWith("none"));
  EXPECT_THAT(unsaved.text, Not(HasSubstr("  evaluate ")));
  EXPECT_EQ(as_printed(row(unsaved.text, "run again"), folder).code, 0);
}

}  // namespace
}  // namespace colonnade::e2e
