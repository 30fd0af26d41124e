// The executable as a user meets it: verbs, help, errors and exit codes, and the launcher's flags.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <string>

namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

struct Result {
  int code = 0;
  std::string text;  // standard output and errors together
};

/// `colonnade <arguments>` in a shell, with "NAME=value " pairs before it.
Result colonnade(const std::string& arguments, const std::string& variables = "") {
  Result result;
  FILE* const pipe = ::popen((variables + COLONNADE_EXECUTABLE " " + arguments + " 2>&1").c_str(), "r");
  char chunk[4096];
  for (std::size_t n = 0; (n = std::fread(chunk, 1, sizeof chunk, pipe)) > 0;) result.text.append(chunk, n);
  const int status = ::pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

TEST(Cli, SaysWhatItIsAndWhatItCanDo) {
  EXPECT_THAT(colonnade("--version").text, StartsWith("colonnade 0."));
  const Result help = colonnade("help");
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.text, HasSubstr("launch"));
  EXPECT_EQ(colonnade("").code, 2);
}

TEST(Cli, SuggestsTheNearestVerb) {
  const Result result = colonnade("lanch --help");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.text, AllOf(StartsWith("error: lanch: "), HasSubstr("did you mean `launch`?")));
  EXPECT_THAT(colonnade("help lanch").text, HasSubstr("lanch"));
}

TEST(Cli, HelpOfAVerbIsItsOwn) {
  const Result result = colonnade("help launch");
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.text, HasSubstr("--max-restarts"));
  EXPECT_EQ(result.text, colonnade("launch --help").text);
}

TEST(Cli, LaunchRefusesWrongFlagsWithExitCode2) {
  const Result unknown = colonnade("launch --nproc-per-nod 2 -- pretrain");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.text, HasSubstr("did you mean --nproc-per-node?"));
  const Result empty = colonnade("launch --nproc-per-node 2");
  EXPECT_EQ(empty.code, 2);
  EXPECT_THAT(empty.text, HasSubstr("there must be something to start"));
  EXPECT_EQ(colonnade("launch --nproc-per-node two -- pretrain").code, 2);
}

/// A folder for logs that is removed with the test.
class CliLaunch : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "cli-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string flags() const { return "launch --nproc_per_node=2 --log-dir " + folder_.string(); }
  fs::path folder_;
};

TEST_F(CliLaunch, StartsAProgramAndShowsRankZero) {
  const Result result = colonnade(flags() + " -- " COLONNADE_FAKE_RANK " --steps 2");
  EXPECT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr("rank 0: step 2 done"), HasSubstr("launch: 2 ranks, world of 2")));
  EXPECT_EQ(colonnade(flags() + " --no-verb -- true").code, 0);
}

TEST_F(CliLaunch, StartsAVerbOfItsOwnAndPassesItsExitCodeOn) {
  const Result result = colonnade(flags() + " -- no-such-verb");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.text, AllOf(HasSubstr("was lost: exit code 2 (settings wrong)"),
                                 HasSubstr("last note: no-such-verb: must be a verb")));
}

TEST_F(CliLaunch, TakesKubeflowsVariables) {
  const std::string logs = "launch --log-dir " + folder_.string() + " -- " COLONNADE_FAKE_RANK;
  const Result placed = colonnade(
      logs, "PET_NNODES=2 PET_NPROC_PER_NODE=2 PET_NODE_RANK=0 PET_MASTER_ADDR=head PET_MASTER_PORT=4711 ");
  EXPECT_EQ(placed.code, 0) << placed.text;
  EXPECT_THAT(
      placed.text,
      HasSubstr("RANK=0 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=head MASTER_PORT=4711"));
  const Result each_gpu = colonnade(logs, "PET_NPROC_PER_NODE=auto CUDA_VISIBLE_DEVICES=0,3,5 ");
  EXPECT_THAT(each_gpu.text, HasSubstr("RANK=0 WORLD_SIZE=3 LOCAL_RANK=0 LOCAL_WORLD_SIZE=3"));
}

}  // namespace
