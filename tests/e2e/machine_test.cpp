// Missing resources: memory, disk space, other ranks. One clear message with a fix,
// printed once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "program.h"

namespace colonnade::e2e {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::size_t lines_of(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(Machine, RunThatDoesNotFitTheMemoryIsNotStarted) {
  const TempFolder folder;
  const Words words = small_gpt() + Words{"--train-iters", "2", "--save", (folder / "run").string()};
  for (const Words& large :
       {Words{"--hidden-size", "100000000"}, Words{"--num-layers", "1000000", "--hidden-size", "4096"},
        Words{"--micro-batch-size", "100000000", "--global-batch-size", "100000000"}}) {
    const Result result = run(colonnade(words + large));
    EXPECT_EQ(result.code, 2) << result.text;
    EXPECT_THAT(result.text, AllOf(HasSubstr("error: memory: the ranks of a machine must fit its memory"),
                                   HasSubstr("lower --"), Not(HasSubstr(".cpp"))));
    EXPECT_EQ(lines_of(result.text), 1U) << result.text;
  }
  const Result ranks = run(launch(2, folder.path(), words + Words{"--hidden-size", "100000000"}));
  EXPECT_EQ(ranks.code, 2) << ranks.text;
  EXPECT_THAT(ranks.text, HasSubstr("of weights for 2 ranks"));
  EXPECT_FALSE(fs::exists(folder / "run"));
}

/// `colonnade preprocess` of 1000 tokens into `prefix`, after `before` in a shell.
Result preprocess(const TempFolder& folder, const std::string& prefix, const std::string& before = ":") {
  std::string text = "{\"text\": \"1";
  for (int i = 0; i < 999; ++i) text += " 7";
  write_text(folder / "in.jsonl", text + "\"}\n");
  return run(Words{"/bin/bash", "-c", before + "; exec \"$0\" \"$@\""} +
             colonnade({"preprocess", "--input", (folder / "in.jsonl").string(), "--output-prefix", prefix,
                        "--tokenizer-type", "NullTokenizer", "--vocab-size", "9"}));
}

void expect_rejected(const Result& result, const std::string& reason) {
  EXPECT_EQ(result.code, 2) << result.text;
  EXPECT_THAT(result.text,
              AllOf(HasSubstr("error: --output-prefix: its folder must be writable"),
                    HasSubstr("got " + reason), HasSubstr("choose another folder or free space")));
  EXPECT_EQ(lines_of(result.text), 1U) << result.text;
}

TEST(Machine, DatasetsAreWrittenToWritableFoldersOnly) {
  const TempFolder folder;
  write_text(folder / "file", "");
  expect_rejected(preprocess(folder, (folder / "file").string() + "/data"), "Not a directory");
  expect_rejected(preprocess(folder, "/proc/none/data"), "No such file");
  expect_rejected(preprocess(folder, (folder / "data").string(), "ulimit -f 1"), "File too large");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 2) << "partial dataset files remain";
  fs::create_directories(folder / "data_text_document.bin/x");
  expect_rejected(preprocess(folder, (folder / "data").string()), "Is a directory");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 7)
      << "three parts and .resume, to resume when there is space";
  fs::remove_all(folder / "data_text_document.bin");
  EXPECT_EQ(preprocess(folder, (folder / "data").string()).code, 0);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 4) << "partial dataset files remain";
  EXPECT_EQ(preprocess(folder, (folder / "new/data").string()).code, 0) << "folders are created";
}

TEST(Machine, MissingRankIsReportedByOurMessageOnly) {
  const TempFolder folder;
  const Words words =
      small_gpt() +
      Words{"--train-iters", "2", "--save", (folder / "run").string(), "--distributed-timeout-minutes",
            "0.06"};
  const Result result = run(colonnade(words), {{"RANK", "0"},
                                               {"LOCAL_RANK", "0"},
                                               {"WORLD_SIZE", "2"},
                                               {"MASTER_ADDR", "127.0.0.1"},
                                               {"MASTER_PORT", free_port()}});
  EXPECT_EQ(result.code, 4) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr("missing: rank 1"), Not(HasSubstr("c10d"))));
}

TEST(Machine, SlowKernelsAreReportedByRankZeroOnly) {
  const TempFolder folder;
  const Words words =
      small_gpt() + Words{"--train-iters", "1", "--eval-iters", "0", "--save", (folder / "run").string()};
  const Result result = run(launch(2, folder.path(), words));
  EXPECT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(read_text(folder / "logs/rank_0.log"),
              HasSubstr("set --attention-dropout 0 for the fast kernels"));
  EXPECT_THAT(read_text(folder / "logs/rank_1.log"), Not(HasSubstr("--attention-dropout")));
  const Result none = run(colonnade(words + Words{"--save", (folder / "fast").string(),  //
                                                  "--attention-dropout", "0"}));
  EXPECT_EQ(none.code, 0) << none.text;
  EXPECT_THAT(none.text, Not(HasSubstr("--attention-dropout")));
}

}  // namespace
}  // namespace colonnade::e2e
