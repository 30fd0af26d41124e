// The launch scripts of recipes and the commands of the guide page on recipes; Megatron's own example
// scripts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>

#include "program.h"
#include "support/launch_lines.h"
#include "support/vectors.h"

namespace colonnade::e2e {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

const std::string kScripts = test::sources() + "/examples/scripts";

/// File names without extension, of the files in the folder with this extension.
std::set<std::string> stems(const fs::path& folder, const std::string& extension) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == extension) names.insert(entry.path().stem());
  return names;
}

/// Number of occurrences of a text.
int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    ++count;
  return count;
}

TEST(LaunchScripts, EveryRecipeHasAScript) {
  std::set<std::string> scripts = stems(kScripts, ".sh");
  EXPECT_EQ(scripts.erase("launch"), 1U);
  EXPECT_EQ(scripts, stems(COLONNADE_RECIPES, ".yaml"));
}

/// The page plans every script, and plans layouts that do not fit only where it says so.
TEST(LaunchScripts, PlansOfTheRecipesPage) {
  const TempFolder folder;
  fs::create_directory_symlink(test::sources() + "/examples", folder / "examples");
  const std::string commands = commands_of_guide("recipes.md");
  for (const std::string& recipe : stems(COLONNADE_RECIPES, ".yaml"))
    EXPECT_THAT(commands, HasSubstr("PLAN=1 examples/scripts/" + recipe + ".sh\n"));
  const std::size_t second = commands.find("PLAN=1 NUM_NODES");
  ASSERT_NE(second, std::string::npos);
  const Result result = shell(folder, "(" + commands.substr(0, second) + ") > first.log &\n" +
                                          commands.substr(second) + "wait $!\ncat first.log");
  ASSERT_EQ(result.code, 0) << result.text;
  const int too_large = count_of(commands, "# does not fit");
  EXPECT_EQ(count_of(result.text, "does not fit: "), too_large) << result.text;
  EXPECT_EQ(count_of(result.text, "fits: "), count_of(commands, "PLAN=1") - too_large) << result.text;
  EXPECT_EQ(count_of(result.text, ", MFU "), count_of(commands, "PLAN=1")) << result.text;
  for (const char* part : {"estimate on H200", "32 ranks: tensor 4 x context 1 x data 4 x pipeline 2"})
    EXPECT_THAT(result.text, HasSubstr(part));
}

/// Flags of a tiny model, for data of the vectors.
const std::string kTiny = R"(
tiny="--num-layers 1 --hidden-size 16 --ffn-hidden-size 32 --num-attention-heads 2 --num-query-groups 1
    --vocab-size 50304 --seq-length 32 --micro-batch-size 1 --global-batch-size 4 --eval-iters 0"
)";

TEST(LaunchScripts, TrialWithoutDataKeepsNoCheckpoint) {
  const TempFolder folder;
  const Result result = shell(folder, kTiny + "GPUS_PER_NODE=1 " + kScripts + "/demo.sh $tiny");
  EXPECT_EQ(result.code, 0) << result.text;
  for (const char* part : {"DATA_PATH is not set", " 20/20 |", "checkpoint  none"})
    EXPECT_THAT(result.text, HasSubstr(part));
}

const char* const kTwoNodes = R"(
export DATA_PATH="0.3 data 0.7 data" RUN_DIR=run
tiny+=" --train-iters 2 --lr-warmup-iters 0"
export NUM_NODES=2 GPUS_PER_NODE=1 MASTER_ADDR=127.0.0.1
NODE_RANK=1 "$SCRIPTS/demo.sh" $tiny --exit-interval 1 > node1.log &
NODE_RANK=0 "$SCRIPTS/demo.sh" $tiny --exit-interval 1
wait $!
NUM_NODES=1 GPUS_PER_NODE=2 "$SCRIPTS/demo.sh" $tiny
)";

TEST(LaunchScripts, TwoNodesTrainAndOneResumes) {
  const TempFolder folder;
  for (const char* end : {".bin", ".idx"})
    fs::copy_file(test::vectors() + "/indexed/gpt2_uint16" + end, folder / ("data" + std::string(end)));
  const Result result = shell(folder, "export SCRIPTS=" + kScripts + " MASTER_PORT=" + free_port() +
                                          " TOKENIZER_MODEL=" + test::vectors() +
                                          "/tokenizers/gpt2_bpe.json" + kTiny + kTwoNodes);
  ASSERT_EQ(result.code, 0) << result.text;
  EXPECT_EQ(iterations(folder / "run"), (std::vector<int>{1, 2}));
  for (const char* part :
       {"world of 2", "the run resumes after iteration 1", "colonnade generate --load run"})
    EXPECT_THAT(result.text, HasSubstr(part));
}

TEST(LaunchScripts, SeveralNodesNeedTheirNumber) {
  const TempFolder folder;
  const Result result = shell(folder, "NUM_NODES=2 " + kScripts + "/demo.sh");
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.text, HasSubstr("NODE_RANK: must be set"));
}

/// Flags that the errors of a plan name.
std::set<std::string> rejected_flags(const std::string& output) {
  static const std::regex kError("error: +(--[a-z0-9-]+):? ");
  std::set<std::string> flags;
  for (std::sregex_iterator at(output.begin(), output.end(), kError), end; at != end; ++at)
    flags.insert((*at)[1].str());
  return flags;
}

/// Flag lines of three of Megatron's example scripts (d98e8a6, August 2026), in their order, with paths X/...
/// and each quoted value as one word. The tokenizer is replaced as in tests/vectors/launch_lines.
TEST(LaunchScripts, MegatronExamplesAreRejectedForFp8Only) {
  const auto lines = test::launch_lines(test::sources() + "/tests/e2e/megatron_examples.jsonl");
  ASSERT_EQ(lines.size(), 3U);
  const TempFolder folder;
  for (test::LaunchLine line : lines) {
    SCOPED_TRACE(line.name);
    std::set<std::string> fp8;
    for (const std::string& word : line.args)
      if (word.starts_with("--fp8-")) fp8.insert(word);
    EXPECT_EQ(fp8.size(), line.name.find("fp8") == std::string::npos ? 0U : 4U);
    const Words plan =
        colonnade({"plan", "--model", line.model, "--world-size", std::to_string(line.world(8))});
    if (!fp8.empty()) {
      const Result rejected = run(plan + line.args, {}, folder.path());
      EXPECT_EQ(rejected.code, 2) << rejected.text;
      EXPECT_EQ(rejected_flags(rejected.text), fp8) << rejected.text;
    }
    for (const std::string& flag : fp8) line.remove(flag);
    const Result accepted = run(plan + line.args, {}, folder.path());
    EXPECT_EQ(accepted.code, 0) << accepted.text;
  }
}

}  // namespace
}  // namespace colonnade::e2e
