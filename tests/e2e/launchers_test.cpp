// Ranks started by torchrun, Slurm and Kubeflow instead of `colonnade launch`: the same two steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>

#include "program.h"

namespace colonnade::e2e {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

Words two_steps(const fs::path& folder) {
  return small_gpt() + Words{"--tensor-model-parallel-size",
                             "2",
                             "--train-iters",
                             "2",
                             "--eval-iters",
                             "0",
                             "--save",
                             folder.string()};
}

std::vector<double> losses(const fs::path& folder) {
  std::vector<double> all;
  for (const auto& line : metrics(folder)) all.push_back(line.at("lm_loss"));
  return all;
}

/// Losses with `colonnade launch`.
const std::vector<double>& expected() {
  static const std::vector<double> made = [] {
    const TempFolder folder;
    const Result result = run(launch(2, folder.path(), two_steps(folder.path())));
    EXPECT_EQ(result.code, 0) << result.text;
    return losses(folder.path());
  }();
  EXPECT_EQ(made.size(), 2U);
  return made;
}

/// Starts one process per entry of `environments` with its variables; all must train.
void expect_trains(const std::vector<Variables>& environments) {
  const TempFolder folder;
  std::vector<std::unique_ptr<Program>> ranks;
  for (const Variables& variables : environments)
    ranks.push_back(std::make_unique<Program>(colonnade(two_steps(folder.path())), variables));
  for (auto& rank : ranks) {
    const Result result = rank->finish();
    EXPECT_EQ(result.code, 0) << result.text;
  }
  EXPECT_EQ(losses(folder.path()), expected());
}

/// In a world of one a step calls no collective; each micro-batch reports progress instead.
TEST(Launchers, StepLongerThanTheHangTimeoutIsNotAHang) {
  const TempFolder folder;
  const Result result = run(launch(1, folder.path(),
                                   small_gpt() + Words{"--global-batch-size", "1600", "--train-iters", "1",
                                                       "--eval-iters", "0", "--save", folder.path().string()},
                                   {"--hang-timeout", "2"}));
  EXPECT_EQ(result.code, 0) << result.text;
}

TEST(Launchers, TorchrunOfTheWheel) {
  const std::string bin = COLONNADE_PYTHON_BIN;
  ASSERT_EQ(run({bin + "/python", "-c", "import torch.distributed.run"}).code, 0)
      << "torchrun must be importable from " << bin << "; run `tools/setup.sh test`";
  const TempFolder folder;
  const Words torchrun{bin + "/python",    "-m",         "torch.distributed.run", "--no-python",
                       "--nproc-per-node", "2",          "--rdzv-backend",        "c10d",
                       "--rdzv-endpoint",  "127.0.0.1:0"};
  const Result result = run(torchrun + colonnade(two_steps(folder.path())));
  EXPECT_EQ(result.code, 0) << result.text;
  EXPECT_EQ(losses(folder.path()), expected());
}

TEST(Launchers, TorchrunStatic) {
  const std::string bin = COLONNADE_PYTHON_BIN;
  ASSERT_EQ(run({bin + "/python", "-c", "import torch.distributed.run"}).code, 0)
      << "torchrun must be importable from " << bin << "; run `tools/setup.sh test`";
  const TempFolder folder;
  const Words torchrun{bin + "/torchrun", "--no-python", "--nproc-per-node", "2",
                       "--master-addr",   "127.0.0.1",   "--master-port",    free_port()};
  const Result result = run(torchrun + colonnade(two_steps(folder.path())));
  EXPECT_EQ(result.code, 0) << result.text;
  EXPECT_EQ(losses(folder.path()), expected());
}

TEST(Launchers, SlurmsVariables) {
  std::vector<Variables> places;
  for (const char* rank : {"0", "1"})
    places.push_back({{"SLURM_PROCID", rank},
                      {"SLURM_LOCALID", rank},
                      {"SLURM_NTASKS", "2"},
                      {"SLURM_NTASKS_PER_NODE", "2"},
                      {"SLURM_JOB_ID", "4711"},
                      {"SLURM_STEP_ID", "0"},
                      {"SLURM_NNODES", "1"},
                      {"SLURM_JOB_NUM_NODES", "1"},
                      {"SLURM_NODELIST", "localhost"},
                      {"SLURM_STEP_NODELIST", "localhost"}});
  expect_trains(places);
}

TEST(Launchers, KubeflowsVariablesOfSingleProcessNodes) {
  const std::string port = free_port();
  std::vector<Variables> places;
  for (const char* rank : {"0", "1"})
    places.push_back({{"PET_NNODES", "2"},
                      {"PET_NPROC_PER_NODE", "1"},
                      {"PET_NODE_RANK", rank},
                      {"PET_MASTER_ADDR", "127.0.0.1"},
                      {"PET_MASTER_PORT", port}});
  expect_trains(places);
}

TEST(Launchers, KubeflowsVariablesForTheLauncherOfANode) {
  const TempFolder folder;
  const Variables node{{"PET_NNODES", "1"},
                       {"PET_NPROC_PER_NODE", "2"},
                       {"PET_NODE_RANK", "0"},
                       {"PET_MASTER_ADDR", "127.0.0.1"},
                       {"PET_MASTER_PORT", free_port()}};
  const Words words =
      colonnade({"launch", "--log-dir", (folder / "logs").string(), "--"}) + two_steps(folder.path());
  const Result result = run(words, node);
  EXPECT_EQ(result.code, 0) << result.text;
  EXPECT_EQ(losses(folder.path()), expected());
}

TEST(Launchers, PlainRankVariables) {
  const std::string port = free_port();
  std::vector<Variables> places;
  for (const char* rank : {"0", "1"})
    places.push_back({{"RANK", rank},
                      {"LOCAL_RANK", rank},
                      {"WORLD_SIZE", "2"},
                      {"MASTER_ADDR", "127.0.0.1"},
                      {"MASTER_PORT", port}});
  expect_trains(places);
}

/// One job of two launchers that simulate two machines with two ranks each.
struct Nodes {
  explicit Nodes(const Words& words, const Variables& variables = {}) {
    const std::string port = free_port();
    for (const char* node : {"0", "1"})
      launchers.push_back(std::make_unique<Program>(
          colonnade({"launch", "--nnodes", "2", "--node-rank", node, "--nproc-per-node", "2", "--master-addr",
                     "127.0.0.1", "--master-port", port, "--log-dir", (folder / "logs").string(), "--"}) +
              words + Words{"--save", folder.path().string()},
          variables));
  }
  std::vector<Result> finish() {
    std::vector<Result> results;
    for (auto& launcher : launchers) results.push_back(launcher->finish());
    return results;
  }
  const TempFolder folder;
  std::vector<std::unique_ptr<Program>> launchers;
};

/// Two tensor-parallel ranks per machine, with replicas on different machines.
const Words kGrid{"--tensor-model-parallel-size", "2", "--eval-iters", "0", "--use-distributed-optimizer"};

TEST(Launchers, TwoLaunchersAreOneJob) {
  const Words words = small_gpt() + kGrid + Words{"--train-iters", "2"};
  Nodes nodes(words);
  for (const Result& result : nodes.finish()) EXPECT_EQ(result.code, 0) << result.text;
  const TempFolder one;
  const Result alone = run(launch(4, one.path(), words + Words{"--save", one.path().string()}));
  ASSERT_EQ(alone.code, 0) << alone.text;
  ASSERT_EQ(losses(one.path()).size(), 2U);
  EXPECT_EQ(losses(nodes.folder.path()), losses(one.path()));
}

TEST(Launchers, RankLostOnOneMachineEndsBothLaunchersWithinSeconds) {
  const Words words = small_gpt() + kGrid + Words{"--train-iters", "50"};
  Nodes nodes(words, {{"COLONNADE_FAULT", "at=forward rank=3 step=3"}});
  const std::vector<Result> results = nodes.finish();
  EXPECT_LT(now_s() - written_s(nodes.folder / "logs/rank_3.log"), 10.0);
  for (const Result& result : results) EXPECT_EQ(result.code, 4) << result.text;
  EXPECT_THAT(results[1].text, HasSubstr("rank 3 was lost: killed by SIGKILL"));
  EXPECT_THAT(results[0].text, testing::ContainsRegex("see the launcher of ranks? (2|3|2, 3)\n"));
}

TEST(Launchers, StopOfOneMachineSavesAndStopsBoth) {
  const Words words = small_gpt() + kGrid + Words{"--train-iters", "5000", "--save-interval", "5000"};
  Nodes nodes(words);
  ASSERT_TRUE(nodes.launchers[0]->wait_until([&] { return iterations(nodes.folder.path()).size() > 1; }));
  nodes.launchers[1]->send(SIGTERM);
  for (const Result& result : nodes.finish()) EXPECT_EQ(result.code, 5) << result.text;
  EXPECT_TRUE(std::filesystem::exists(nodes.folder / "checkpoints/latest"));
}

}  // namespace
}  // namespace colonnade::e2e
