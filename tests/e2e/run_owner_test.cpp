// Two runs in one folder at the same time: one continues, the other reports the owner; full disks; runs that
// keep no checkpoint. Real processes, real signals, a real full disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <numeric>

#include "program.h"

namespace colonnade::e2e {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// COLONNADE_ROUNDS, or `otherwise`.
int rounds(int otherwise) {
  const char* const text = std::getenv("COLONNADE_ROUNDS");
  return text != nullptr ? std::atoi(text) : otherwise;
}

/// A smaller GPT than small_gpt: `steps` steps, a checkpoint every second step.
Words tiny(int steps, const fs::path& folder, const Words& more = {}) {
  return small_gpt() + Words{"--num-layers",   "1",
                             "--hidden-size",  "16",
                             "--eval-iters",   "0",
                             "--log-interval", "1000",
                             "--train-iters",  std::to_string(steps),
                             "--save",         folder.string()} +
         more;
}

std::vector<int> first_numbers(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 1);
  return numbers;
}

/// Expects the files of a single run of `steps` steps.
void expect_files_of_one_run(const fs::path& folder, int steps, int sessions = 1) {
  EXPECT_EQ(iterations(folder), first_numbers(steps)) << "each iteration once";
  const Result verified = run(colonnade({"checkpoint", "verify", folder.string()}));
  EXPECT_EQ(verified.code, 0) << verified.text;
  EXPECT_EQ(read_text(folder / "checkpoints/latest"), "step_0000000" + std::to_string(steps) + "\n");
  EXPECT_FALSE(fs::exists(folder / "owner.txt"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "tensorboard"), {}), sessions) << "event files";
}

/// Two runs with different seeds, so that their tensors differ. The first one sleeps before its first
/// checkpoint until the second one has given up.
TEST(RunOwner, OfTwoRunsInOneFolderOneContinues) {
  for (int round = 0; round < rounds(2); ++round) {
    const TempFolder folder;
    const Variables slow{{"COLONNADE_FAULT", "at=forward step=1 sleep=10"}};
    Program a(colonnade(tiny(4, folder.path(), {"--seed", "1"})), slow);
    Program b(colonnade(tiny(4, folder.path(), {"--seed", "2"})), slow);
    const Result results[] = {a.finish(), b.finish()};
    const bool first = results[0].code == 0;
    const Result& winner = results[first ? 0 : 1];
    const Result& loser = results[first ? 1 : 0];
    ASSERT_EQ(winner.code, 0) << results[0].text << results[1].text;
    ASSERT_EQ(loser.code, 2) << winner.text << loser.text;
    EXPECT_THAT(loser.text,
                AllOf(HasSubstr("error: --save: one process at a time may write the folder; got " +
                                folder.path().string() + ", held by host "),
                      HasSubstr("wait for that run, stop it, or choose another folder")));
    expect_files_of_one_run(folder.path(), 4);
    const std::string manifest = read_text(folder / "checkpoints/step_00000004/manifest.json");
    EXPECT_THAT(manifest, HasSubstr(first ? "\"seed\":\"1\"" : "\"seed\":\"2\""));
  }
}

TEST(RunOwner, OfTwoLaunchersInOneFolderOneContinues) {
  for (int round = 0; round < rounds(1); ++round) {
    const TempFolder folder;
    const Variables slow{{"COLONNADE_FAULT", "at=forward step=1 sleep=12"}};
    const auto command = [&](const char* name, bool own_logs) {
      Words words = colonnade({"launch", "--nproc-per-node", "2"});
      if (own_logs) words = words + Words{"--log-dir", (folder / name).string()};
      return words + Words{"--"} + tiny(4, folder / "run");
    };
    // With separate logs the ranks report the error, with logs in the run folder the launcher does.
    const bool own_logs = round % 2 == 0;
    Program a(command("a", own_logs), slow);
    Program b(command("b", own_logs), slow);
    const Result results[] = {a.finish(), b.finish()};
    const bool first = results[0].code == 0;
    ASSERT_EQ(results[first ? 0 : 1].code, 0) << results[0].text << results[1].text;
    const Result& loser = results[first ? 1 : 0];
    ASSERT_EQ(loser.code, 2) << loser.text;
    EXPECT_THAT(loser.text, AllOf(HasSubstr("one process at a time may write the folder"),
                                  HasSubstr("held by host "), Not(HasSubstr("was lost"))));
    for (const char* log : {"rank_0.log", "rank_1.log"}) {
      const std::string text =
          read_text((own_logs ? folder / (first ? "b" : "a") : folder / "run/logs") / log);
      EXPECT_EQ(text.find("one process at a time") != std::string::npos, own_logs)
          << "of the other launcher only";
    }
    expect_files_of_one_run(folder / "run", 4);
  }
}

TEST(RunOwner, KilledRunReleasesTheFolderAndReadersNeedNoLock) {
  const TempFolder folder;
  const Words words = tiny(4, folder.path(), {"--load", folder.path().string()});
  Program first(colonnade(words), {{"COLONNADE_FAULT", "at=forward step=4 sleep=100"}});
  ASSERT_TRUE(first.wait_until([&] { return fs::exists(folder / "checkpoints/latest"); }));
  EXPECT_EQ(run(colonnade({"checkpoint", "verify", folder.path().string()})).code, 0);
  EXPECT_EQ(run(colonnade({"data", "audit", folder.path().string()})).code, 0);
  EXPECT_EQ(
      run(colonnade({"evaluate", "--load", folder.path().string(), "--mock-data", "--eval-iters", "1"})).code,
      0);
  first.send(SIGKILL);
  first.finish();
  EXPECT_TRUE(fs::exists(folder / "owner.txt"));
  const double begin = now_s();
  const Result second = run(colonnade(words));
  EXPECT_EQ(second.code, 0) << second.text;
  EXPECT_LT(now_s() - begin, 25);
  expect_files_of_one_run(folder.path(), 4, 2);
}

TEST(RunOwner, RunThatEndsMeanwhileIsNotOverwritten) {
  const TempFolder folder;
  // The second one reads its settings before the first one saves, and locks the folder after that one has
  // ended.
  Program second(colonnade(tiny(4, folder.path())), {{"COLONNADE_FAULT", "at=connected sleep=12"}});
  ASSERT_TRUE(second.wait_until([&] { return second.text().find("at connected") != std::string::npos; }));
  ASSERT_EQ(run(colonnade(tiny(2, folder.path()))).code, 0);
  const Result late = second.finish();
  EXPECT_EQ(late.code, 2) << late.text;
  EXPECT_THAT(late.text,
              AllOf(HasSubstr("with checkpoints up to step 2 now"), HasSubstr("start the command again")));
  expect_files_of_one_run(folder.path(), 2);
}

TEST(RunOwner, TwoRunsWithoutANameHaveSeparateFolders) {
  const TempFolder folder;
  Words words = tiny(2, "x");
  words.erase(words.end() - 2, words.end());
  Program a(colonnade(words), {}, folder.path());
  Program b(colonnade(words), {}, folder.path());
  EXPECT_EQ(a.finish().code, 0);
  EXPECT_EQ(b.finish().code, 0);
  int runs = 0;
  for (const auto& entry : fs::directory_iterator(folder / "runs")) {
    EXPECT_THAT(iterations(entry.path()), ElementsAre(1, 2));
    ++runs;
  }
  EXPECT_EQ(runs, 2);
}

/// Runs `command` in a mount namespace in which `folder` is a temporary disk of `kilobytes`; the files on the
/// disk at the end are copied to `kept`. Nothing where mounts are not allowed.
std::optional<Result> on_small_disk(const fs::path& folder, int kilobytes, const Words& command,
                                    const fs::path& kept) {
  const std::string mount =
      "mount -t tmpfs -o size=" + std::to_string(kilobytes) + "k none " + folder.string();
  if (run({"unshare", "-m", "bash", "-c", mount}).code != 0) return std::nullopt;
  std::string words;
  for (const std::string& word : command) words += " '" + word + "'";
  return run({"unshare", "-m", "bash", "-c",
              mount + " && { " + words + "; code=$?; cp -r " + folder.string() + "/. " + kept.string() +
                  "; exit $code; }"});
}

TEST(RunFullDisk, OnAllRanksIsOneErrorWithItsCauseAndCode2AndNoRestart) {
  const TempFolder folder, disk, kept;
  const Words words = tiny(4, disk.path(), {"--load", disk.path().string(), "--hidden-size", "256"});
  const auto result = on_small_disk(
      disk.path(), 3000, colonnade({"launch", "--nproc-per-node", "2", "--max-restarts", "3", "--"}) + words,
      kept.path());
  if (!result) GTEST_SKIP() << "this machine does not let a test mount a tmpfs (unshare -m; mount)";
  EXPECT_EQ(result->code, 2) << result->text;
  EXPECT_THAT(result->text,
              AllOf(HasSubstr("saving the checkpoint of iteration 2 failed: rank "),
                    HasSubstr("No space left on device"),
                    HasSubstr("training continues, the last good checkpoint stays"),
                    HasSubstr("error: the weights after iteration 4 are not saved: rank "),
                    HasSubstr(" free of 3."), HasSubstr("ended with exit code 2, as all ranks had agreed"),
                    Not(HasSubstr("was lost")), Not(HasSubstr("restart 1"))));
  EXPECT_TRUE(fs::is_empty(kept / "checkpoints"));
  EXPECT_THAT(iterations(kept.path()), ElementsAre(1, 2, 3, 4));
}

/// `command` with a file size limit of 200 kB, which simulates a full disk for one process.
Words with_small_files(const Words& command) {
  std::string words = "ulimit -f 200; exec";
  for (const std::string& word : command) words += " '" + word + "'";
  return {"bash", "-c", words};
}

TEST(RunFullDisk, RunEndsAfterTheGivenNumberOfFailedSaves) {
  for (const int ranks : {1, 2}) {
    const TempFolder folder;
    const Words words = small_gpt() + Words{"--train-iters",
                                            "9",
                                            "--eval-iters",
                                            "0",
                                            "--save",
                                            (folder / "run").string(),
                                            "--exit-after-failed-saves",
                                            "2"};
    const Result result =
        run(with_small_files(ranks == 1 ? colonnade(words) : launch(2, folder.path(), words)));
    EXPECT_EQ(result.code, 2) << result.text;
    EXPECT_THAT(result.text, AllOf(HasSubstr("saving the checkpoint of iteration 2 failed"),
                                   HasSubstr("--exit-after-failed-saves: 2 consecutive saves have failed"),
                                   HasSubstr("error: the weights after iteration 4 are not saved: "),
                                   HasSubstr("File too large"), Not(HasSubstr("was lost"))));
    EXPECT_THAT(iterations(folder / "run"), ElementsAre(1, 2, 3, 4));
  }
}

TEST(RunFullDisk, NonFiniteLossOnAllRanksIsNotALostRank) {
  const TempFolder folder;
  const Result result =
      run(launch(2, folder.path(),
                 tiny(4, folder / "run",
                      {"--load", (folder / "run").string(), "--lr", "1e30", "--lr-decay-style", "constant"}),
                 {"--max-restarts", "2"}));
  EXPECT_EQ(result.code, 1) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr("must be finite"), HasSubstr("as all ranks had agreed"),
                                 Not(HasSubstr("was lost")), Not(HasSubstr("restart 1"))));
}

/// tiny() without --save-interval, and without --save for "".
Words without_interval(const std::string& save, const Words& more = {}) {
  Words words = tiny(3, save, more);
  const auto erase = [&](const char* flag) {
    const auto at = std::find(words.begin(), words.end(), flag);
    words.erase(at, at + 2);
  };
  erase("--save-interval");
  if (save.empty()) erase("--save");
  return words;
}

TEST(RunKeeps, NoCheckpointWithoutSaveAndWarnsAtItsStart) {
  const TempFolder folder;
  const Result result = run(colonnade(without_interval("")), {}, folder.path());
  EXPECT_EQ(result.code, 0) << result.text;
  const std::size_t warned = result.text.find("warning: this run keeps no checkpoint: without --save and");
  EXPECT_LT(warned, result.text.find("step ")) << result.text;
  const fs::path made = fs::directory_iterator(folder / "runs")->path();
  EXPECT_TRUE(fs::is_empty(made / "checkpoints"));
  const Result saves = run(colonnade(without_interval("", {"--save-interval", "3"})), {}, folder.path());
  EXPECT_THAT(saves.text, AllOf(Not(HasSubstr("keeps no checkpoint")), HasSubstr("saved runs/")));
}

TEST(RunKeeps, ItsLastStateWithSaveOnlyEvenWhenStopped) {
  const TempFolder folder;
  const Words words = without_interval((folder / "run").string());
  const Result stopped = run(colonnade(words), {{"COLONNADE_FAULT", "at=forward step=2 signal=TERM"}});
  EXPECT_EQ(stopped.code, 5) << stopped.text;
  EXPECT_THAT(stopped.text, AllOf(HasSubstr("saves once, at its end or when it is stopped"),
                                  Not(HasSubstr("warning: this run keeps"))));
  EXPECT_EQ(read_text(folder / "run/checkpoints/latest"), "step_00000002\n");
  const Result done = run(colonnade(words + Words{"--load", (folder / "run").string()}));
  EXPECT_EQ(done.code, 0) << done.text;
  EXPECT_EQ(read_text(folder / "run/checkpoints/latest"), "step_00000003\n");
}

}  // namespace
}  // namespace colonnade::e2e
