// Ranks that are killed, stopped, or cannot save: the resumed state, the named rank, and the
// messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <set>

#include "colonnade/fault/inject.h"
#include "program.h"
#include "support/long.h"

namespace colonnade::e2e {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int kRanks = 4;

struct Layout {
  const char* name;
  int ranks;
  Words flags;
};

const Words kTensor{"--tensor-model-parallel-size", "2", "--sequence-parallel"};
const Words kPipeline{"--pipeline-model-parallel-size", "2"};
const Words kDistributed{"--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather",
                         "--ddp-bucket-size", "20000"};
const Layout kGrid{"TensorAndPipeline", kRanks, kTensor + kPipeline};
const Layout kReplicas{"PipelineAndDistributedOptimizer", kRanks, kPipeline + kDistributed};

/// Layouts in which a rank is killed at every point: of two ranks, in the full family of four.
const std::vector<Layout>& layouts_of_points() {
  static const std::vector<Layout> kLayouts = [] {
    if (test::full_families()) return std::vector{kGrid, kReplicas};
    return std::vector<Layout>{
        {"Tensor", 2, kTensor}, {"Pipeline", 2, kPipeline}, {"DistributedOptimizer", 2, kDistributed}};
  }();
  return kLayouts;
}

/// Five steps, saves after 2, 4 and 5, an evaluation after 4 (and a last one).
Words training(const Layout& layout, const fs::path& folder) {
  return small_gpt() + layout.flags +
         Words{"--train-iters", "5", "--eval-interval", "4", "--eval-iters", "1", "--save", folder.string()};
}

Words resumed(const Layout& layout, const fs::path& folder) {
  return training(layout, folder) + Words{"--load", folder.string()};
}

/// Three steps of one rank.
Words alone(const fs::path& folder) {
  return small_gpt() + Words{"--train-iters", "3", "--eval-iters", "0", "--save", folder.string()};
}

fs::path step_folder(const fs::path& run, int step) {
  return run / "checkpoints" / ("step_0000000" + std::to_string(step));
}

/// Folder of the uninterrupted run, trained once per layout.
const fs::path& uninterrupted(const Layout& layout) {
  static std::map<std::string, std::unique_ptr<TempFolder>> made;
  auto& folder = made[layout.name];
  if (!folder) {
    folder = std::make_unique<TempFolder>();
    const Result result = run(launch(layout.ranks, folder->path(), training(layout, folder->path())));
    EXPECT_EQ(result.code, 0) << result.text;
  }
  return folder->path();
}

/// Expects the run in `folder` to be complete and equal to the uninterrupted one.
void expect_as_uninterrupted(const Layout& layout, const fs::path& folder) {
  EXPECT_THAT(differences(step_folder(uninterrupted(layout), 5), step_folder(folder, 5)), IsEmpty());
  EXPECT_THAT(iterations(folder), ElementsAre(1, 2, 3, 4, 5));
  const auto expected = metrics(uninterrupted(layout));
  const auto got = metrics(folder);
  for (std::size_t i = 0; i < std::min(expected.size(), got.size()); ++i)
    for (const char* key : {"lm_loss", "grad_norm", "learning_rate", "consumed_samples"})
      EXPECT_EQ(got[i].at(key), expected[i].at(key)) << key << " of step " << i + 1;
}

void expect_resumes(const Layout& layout, const fs::path& folder) {
  const Result result = run(launch(layout.ranks, folder, resumed(layout, folder)));
  ASSERT_EQ(result.code, 0) << result.text;
  expect_as_uninterrupted(layout, folder);
}

/// Kills a rank at a point in a step; step 0: before the first step of a resumed run.
struct Death {
  std::string point;
  int rank;
  int step;
  const Layout* layout;
};

void PrintTo(const Death& death, std::ostream* out) { *out << death.point << " on rank " << death.rank; }

/// Every point once, with ranks and layouts in turn; rank 0 for the points that only it reaches.
std::vector<Death> deaths() {
  const std::set<std::string_view> first_rank_only{"save-manifest", "save-rename", "save-renamed",
                                                   "save-latest"};
  const std::set<std::string_view> before_the_first_step{"connected", "model-built", "data-opened",
                                                         "restored"};
  const std::vector<Layout>& layouts = layouts_of_points();
  std::vector<Death> all;
  int turn = 0;
  for (const std::string_view point : fault::kPoints) {
    const Layout& layout = layouts[static_cast<std::size_t>(turn / 2) % layouts.size()];
    const bool late = point.starts_with("save") || point.starts_with("evaluate");
    const int rank = first_rank_only.contains(point) ? 0 : turn % layout.ranks;
    const int step = before_the_first_step.contains(point) ? 0 : late ? 4 : 3;
    all.push_back({std::string(point), rank, step, &layout});
    ++turn;
  }
  return all;
}

class Faults : public testing::TestWithParam<Death> {};

TEST_P(Faults, KilledRankIsNamedAndTheRunResumesBitwise) {
  const Death& death = GetParam();
  const TempFolder folder;
  std::string fault = "at=" + death.point + " rank=" + std::to_string(death.rank);
  Words words = training(*death.layout, folder.path());
  if (death.step == 0) {
    ASSERT_EQ(run(launch(death.layout->ranks, folder.path(), words + Words{"--exit-interval", "2"})).code, 0);
    words = resumed(*death.layout, folder.path());
  } else {
    fault += " step=" + std::to_string(death.step);
  }
  const Result killed = run(launch(death.layout->ranks, folder.path(), words), {{"COLONNADE_FAULT", fault}});
  ASSERT_EQ(killed.code, 4) << killed.text;
  const std::string verdict = "rank " + std::to_string(death.rank) + " was lost: killed by SIGKILL";
  ASSERT_THAT(killed.text, HasSubstr(verdict));
  EXPECT_THAT(killed.text, HasSubstr("COLONNADE_FAULT: at " + death.point));  // among its last lines
  const double died_s = written_s(folder / "logs" / ("rank_" + std::to_string(death.rank) + ".log"));
  EXPECT_LT(killed.time_of(verdict) - died_s, 5.0);
  expect_resumes(*death.layout, folder.path());
}

INSTANTIATE_TEST_SUITE_P(Points, Faults, testing::ValuesIn(deaths()), [](const auto& info) {
  std::string name = info.param.point;
  std::erase(name, '-');
  return name + "OfRank" + std::to_string(info.param.rank);
});

TEST(FaultRestarts, LauncherRestartsTheRanks) {
  // The command of a restartable job: it loads from its save folder.
  const TempFolder folder;
  const Result result =
      run(launch(kRanks, folder.path(), resumed(kGrid, folder.path()), {"--max-restarts", "1"}),
          {{"COLONNADE_FAULT", "at=optimizer rank=3 step=4 restart=0"}});
  EXPECT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text,
              AllOf(HasSubstr("rank 3 was lost: killed by SIGKILL"), HasSubstr("restart 1 of 1")));
  expect_as_uninterrupted(kGrid, folder.path());
}

TEST(FaultRestarts, RankThatDiesRepeatedlyEndsTheRun) {
  const TempFolder folder;
  const Result result = run(launch(2, folder.path(),
                                   small_gpt() + Words{"--train-iters", "2", "--save", folder.path().string(),
                                                       "--load", folder.path().string()},
                                   {"--max-restarts", "1"}),
                            {{"COLONNADE_FAULT", "at=data rank=1"}});
  EXPECT_EQ(result.code, 4);
  EXPECT_THAT(result.text, ContainsRegex("restart 1 of 1(.|\n)*rank 1 was lost"));
}

TEST(FaultHang, HungRankIsNamedByTheTimeoutOfTheOthers) {
  const TempFolder folder;
  const Result result = run(launch(2, folder.path(),
                                   small_gpt() + Words{"--train-iters", "4", "--save", folder.path().string(),
                                                       "--tensor-model-parallel-size", "2"},
                                   {"--hang-timeout", "15", "--grace-period", "1"}),
                            {{"COLONNADE_FAULT", "at=forward rank=1 step=2 sleep=200"}});
  EXPECT_EQ(result.code, 4) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr("rank 1 does not respond"),
                                 ContainsRegex("rank 0 waits in '[^']+'.*rank 1 is missing there")));
}

/// A signal to the launcher, or to one rank, in the second step.
struct Request {
  const char* name;
  int signal;
  int rank;  ///< -1: the launcher
};

void PrintTo(const Request& request, std::ostream* out) { *out << request.name; }

class FaultStops : public testing::TestWithParam<Request> {};

TEST_P(FaultStops, SavesExitsWith5AndResumesBitwise) {
  const Request& request = GetParam();
  const TempFolder folder;
  const std::string rank = std::to_string(std::max(request.rank, 0));
  const std::string act =
      request.rank < 0 ? "sleep=1" : std::string("signal=") + (request.signal == SIGINT ? "INT" : "TERM");
  Program program(launch(kRanks, folder.path(), training(kReplicas, folder.path())),
                  {{"COLONNADE_FAULT", "at=losses step=2 rank=" + rank + " " + act}});
  if (request.rank < 0) {
    ASSERT_TRUE(program.wait_until([&] { return !iterations(folder.path()).empty(); }));
    program.send(request.signal);
  }
  const Result stopped = program.finish();
  ASSERT_EQ(stopped.code, 5) << stopped.text;
  EXPECT_THAT(stopped.text, HasSubstr(" -- pretrain --config " + folder.path().string() + "/config.yaml"));
  EXPECT_LT(iterations(folder.path()).size(), 5U);
  EXPECT_EQ(iterations(folder.path()).size(),
            static_cast<std::size_t>(read_text(folder / "checkpoints/latest").at(12) - '0'));
  expect_resumes(kReplicas, folder.path());
}

INSTANTIATE_TEST_SUITE_P(Signals, FaultStops,
                         testing::Values(Request{"TermToTheLauncher", SIGTERM, -1},
                                         Request{"IntToTheLauncher", SIGINT, -1},
                                         Request{"TermToARank", SIGTERM, 2},
                                         Request{"IntToARank", SIGINT, 1}),
                         [](const auto& info) { return std::string(info.param.name); });

/// All ranks wait at a point before the first step until they are stopped.
class FaultEarlyStops : public testing::TestWithParam<const char*> {};

TEST_P(FaultEarlyStops, EndsAtOnceWith5AndLeavesNoPartialFiles) {
  const TempFolder folder;
  const std::string point = GetParam();
  Program program(launch(2, folder.path(), training(kReplicas, folder.path())),
                  {{"COLONNADE_FAULT", "at=" + point + " sleep=100"}});
  const auto log = [&](int rank) {
    return read_text(folder / ("logs/rank_" + std::to_string(rank) + ".log"));
  };
  const auto there = [&](int rank) { return log(rank).find("COLONNADE_FAULT: at") != std::string::npos; };
  ASSERT_TRUE(program.wait_until([&] { return there(0) && there(1); }));
  const double asked_s = now_s();
  program.send(SIGTERM);
  const Result stopped = program.finish();
  EXPECT_EQ(stopped.code, 5) << stopped.text;
  EXPECT_LT(now_s() - asked_s, 5.0);
  for (const int rank : {0, 1})
    EXPECT_THAT(log(rank), HasSubstr("stopped by SIGTERM before the first step; nothing had to be saved"));
  EXPECT_THAT(stopped.text, Not(HasSubstr("was lost")));
  EXPECT_FALSE(fs::exists(folder / "metrics.jsonl"));
}

INSTANTIATE_TEST_SUITE_P(Points, FaultEarlyStops,
                         testing::Values("connected", "model-built", "data-opened", "restored"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(FaultEarlyStop, OneRankAloneIsEnough) {
  const TempFolder folder;
  const Result stopped = run(launch(2, folder.path(), training(kReplicas, folder.path())),
                             {{"COLONNADE_FAULT", "at=model-built rank=1 signal=TERM"}});
  EXPECT_EQ(stopped.code, 5) << stopped.text;
  EXPECT_THAT(stopped.text,
              AllOf(HasSubstr("rank 1 was asked to stop before the first step"), Not(HasSubstr("was lost"))));
}

TEST(FaultEarlyStop, RankThatWaitsForTheOthersEndsAtOnce) {
  for (const char* rank : {"0", "1"}) {  // rank 0 waits in its store, rank 1 for the store
    const TempFolder folder;
    Program program(colonnade(training(kReplicas, folder.path())), {{"RANK", rank},
                                                                    {"LOCAL_RANK", rank},
                                                                    {"WORLD_SIZE", "2"},
                                                                    {"MASTER_ADDR", "127.0.0.1"},
                                                                    {"MASTER_PORT", free_port()}});
    const auto waits = [&] { return program.text().find("rendezvous: waiting") != std::string::npos; };
    ASSERT_TRUE(program.wait_until(waits));
    program.send(SIGINT);
    const Result stopped = program.finish(20);
    EXPECT_EQ(stopped.code, 5) << stopped.text;
    EXPECT_THAT(stopped.text, HasSubstr("stopped by SIGINT before the first step"));
  }
}

TEST(FaultEarlyStop, RunThatWasAboutToResumeIsUnchanged) {
  const TempFolder folder;
  const Words words = alone(folder.path()) + Words{"--load", folder.path().string()};
  ASSERT_EQ(run(colonnade(words + Words{"--exit-interval", "1"})).code, 0);
  const Result stopped = run(colonnade(words), {{"COLONNADE_FAULT", "at=restored signal=TERM"}});
  EXPECT_EQ(stopped.code, 5) << stopped.text;
  EXPECT_THAT(iterations(folder.path()), ElementsAre(1));
  const Result resumed = run(colonnade(words));
  EXPECT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_THAT(iterations(folder.path()), ElementsAre(1, 2, 3));
}

TEST(FaultInterval, ExitIntervalSavesAndEnds) {
  const TempFolder folder;
  const Words words = training(kGrid, folder.path());
  EXPECT_EQ(run(launch(kRanks, folder.path(), words + Words{"--exit-interval", "3"})).code, 0);
  EXPECT_THAT(iterations(folder.path()), ElementsAre(1, 2, 3));
  expect_resumes(kGrid, folder.path());
}

/// One rank with a file size limit of `kilobytes`, which simulates a full disk.
Result with_small_files(int kilobytes, const Words& words) {
  std::string command = "ulimit -f " + std::to_string(kilobytes) + "; exec";
  for (const std::string& word : colonnade(words)) command += " '" + word + "'";
  return run({"bash", "-c", command});
}

TEST(FaultDisk, FullDiskDoesNotStopTraining) {
  const TempFolder folder;
  const Result result = with_small_files(200, alone(folder.path()));
  EXPECT_EQ(result.code, 2) << result.text;
  EXPECT_THAT(result.text,
              AllOf(HasSubstr("saving the checkpoint of iteration 2 failed"), HasSubstr("File too large"),
                    HasSubstr("training continues, the last good checkpoint stays"), HasSubstr("step    3/3"),
                    HasSubstr("error: the weights after iteration 3 are not saved")));
  EXPECT_THAT(iterations(folder.path()), ElementsAre(1, 2, 3));
  EXPECT_TRUE(fs::is_empty(folder / "checkpoints"));
}

TEST(FaultDisk, LastGoodCheckpointIsKept) {
  const TempFolder folder;
  ASSERT_EQ(run(colonnade(alone(folder.path()) + Words{"--exit-interval", "1"})).code, 0);
  const Result full = with_small_files(200, alone(folder.path()) + Words{"--load", folder.path().string()});
  EXPECT_THAT(full.text, HasSubstr("saving the checkpoint"));
  const Result again = run(colonnade(alone(folder.path()) + Words{"--load", folder.path().string()}));
  EXPECT_EQ(again.code, 0);
  EXPECT_THAT(again.text,
              AllOf(HasSubstr("the run resumes after iteration 1"), Not(HasSubstr("saving the checkpoint"))));
  EXPECT_THAT(iterations(folder.path()), ElementsAre(1, 2, 3));
}

TEST(FaultDisk, FolderThatBecomesReadOnlyDoesNotStopTraining) {
  const TempFolder folder;
  Program program(as_plain_user(colonnade(alone(folder.path()))),
                  {{"COLONNADE_FAULT", "at=forward step=1 sleep=1"}});
  ASSERT_TRUE(program.wait_until([&] { return fs::exists(folder / "metrics.jsonl"); }));
  fs::permissions(folder / "checkpoints", fs::perms::owner_read | fs::perms::owner_exec);
  const Result result = program.finish();
  fs::permissions(folder / "checkpoints", fs::perms::owner_all);
  EXPECT_EQ(result.code, 1) << result.text;
  EXPECT_THAT(result.text,
              AllOf(HasSubstr("saving the checkpoint of iteration 2 failed"), HasSubstr("Permission denied"),
                    HasSubstr("training continues, the last good checkpoint stays"), HasSubstr("step    3/3"),
                    HasSubstr("error: the weights after iteration 3 are not saved")));
  EXPECT_TRUE(fs::is_empty(folder / "checkpoints"));
}

TEST(FaultDisk, FolderReplacedByAFileDoesNotStopTraining) {
  const TempFolder folder;
  Program program(colonnade(alone(folder.path())), {{"COLONNADE_FAULT", "at=forward step=1 sleep=1"}});
  ASSERT_TRUE(program.wait_until([&] { return fs::exists(folder / "metrics.jsonl"); }));
  fs::remove(folder / "checkpoints");
  write_text(folder / "checkpoints", "a file");
  const Result result = program.finish();
  EXPECT_EQ(result.code, 1) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr("saving the checkpoint of iteration 2 failed"),
                                 HasSubstr("checkpoints"), HasSubstr("step    3/3")));
}

TEST(FaultNumbers, NonFiniteStepStopsTheRunOrIsSkippedWithANote) {
  const TempFolder folder;
  const Words words = alone(folder.path()) + Words{"--lr", "1e30", "--lr-decay-style", "constant"};
  const Result stopped = run(colonnade(words));
  EXPECT_EQ(stopped.code, 1) << stopped.text;
  EXPECT_THAT(stopped.text, AllOf(HasSubstr("must be finite"), HasSubstr("in step 2")));
  const Result unchecked = run(colonnade(words + Words{"--no-check-for-nan-in-loss-and-grad"}));
  EXPECT_EQ(unchecked.code, 0) << unchecked.text;
  std::vector<bool> skipped;
  for (const auto& line : metrics(folder.path())) skipped.push_back(line.at("skipped"));
  EXPECT_THAT(skipped, ElementsAre(false, true, true));
  std::vector<std::string> different =
      differences(step_folder(folder.path(), 2), step_folder(folder.path(), 3));
  std::erase_if(different, [](const std::string& what) { return what.starts_with("state: "); });
  EXPECT_THAT(different, IsEmpty()) << "weights and moments are unchanged";
}

TEST(FaultWords, InvalidFaultSpecificationIsRejected) {
  const TempFolder folder;
  const Result result = run(colonnade(alone(folder.path())), {{"COLONNADE_FAULT", "at=optimiser"}});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.text, HasSubstr("did you mean optimizer?"));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(Deterministic, FourReplicasReduceInAFixedOrder) {
  const TempFolder a;
  const TempFolder b;
  for (const TempFolder* folder : {&a, &b}) {
    const Result result =
        run(launch(kRanks, folder->path(),
                   small_gpt() + Words{"--train-iters", "3", "--save", folder->path().string()}));
    ASSERT_EQ(result.code, 0) << result.text;
  }
  EXPECT_THAT(differences(step_folder(a.path(), 3), step_folder(b.path(), 3)), IsEmpty());
}

}  // namespace
}  // namespace colonnade::e2e
