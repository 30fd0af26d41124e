// The launcher with real processes that exit, crash, freeze, hang and are interrupted.
#include "colonnade/launch/launcher.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/progress.h"
#include "colonnade/launch/logs.h"
#include "colonnade/launch/process.h"

namespace colonnade::launch {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Upper bound for prompt detection, including start-up and a stalled machine; undetected failures take a
/// minute or more.
constexpr double kSoonS = 15;

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

/// Fixture with a temporary folder.
class Launcher : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "launch-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  void TearDown() override {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    fs::remove_all(folder_);
  }

  /// Runs the launcher in a child process; its output goes to `folder_`/out and err.
  void start(std::vector<std::string> flags, Options options = {}) {
    options.log_dir = folder_ / "logs";
    if (options.nproc_per_node == 1) options.nproc_per_node = 3;
    options.command = {COLONNADE_FAKE_RANK};
    options.command.insert(options.command.end(), flags.begin(), flags.end());
    start_ns_ = monotonic_ns();
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::dup2(::open((folder_ / "out").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), STDOUT_FILENO);
    const std::string errors = terminal_ >= 0 ? ::ptsname(terminal_) : (folder_ / "err").string();
    ::dup2(::open(errors.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY, 0600), STDERR_FILENO);
    try {
      ::_exit(run(options));
    } catch (const ConfigError& error) {
      ::dprintf(STDERR_FILENO, "error: %s\n", error.what());
      ::_exit(kExitSettings);
    }
  }

  /// Exit code of the launcher, or 128 + the signal that killed it.
  int finish() {
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    pid_ = 0;
    seconds_ = seconds_since_start();
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  double seconds_since_start() const { return static_cast<double>(monotonic_ns() - start_ns_) * 1e-9; }

  std::string text(const std::string& name) const {
    return fs::exists(folder_ / name) ? read_file(folder_ / name) : std::string();
  }
  std::string log(int rank) const { return text(fmt::format("logs/rank_{}.log", rank)); }

  /// Waits until all three ranks have printed `what`.
  void wait_for(const std::string& what) const {
    for (int i = 0; i < 1000; ++i) {
      int found = 0;
      for (int rank = 0; rank < 3; ++rank) found += log(rank).find(what) != std::string::npos ? 1 : 0;
      if (found == 3) return;
      sleep_ms(10);
    }
    FAIL() << "not all ranks printed " << what;
  }

  pid_t pid_of(int rank) const {
    const std::string all = log(rank);
    return std::stoi(all.substr(all.rfind("pid=") + 4));
  }

  fs::path folder_;
  pid_t pid_ = 0;
  int terminal_ = -1;  // master side of a pseudo-terminal for the launcher's errors; -1: a file
  std::int64_t start_ns_ = 0;
  double seconds_ = 0;
};

bool is_alive(pid_t pid) {
  const std::string stat =
      fs::exists(fmt::format("/proc/{}/stat", pid)) ? read_file(fmt::format("/proc/{}/stat", pid)) : "";
  return !stat.empty() && stat.find(") Z") == std::string::npos;
}

TEST_F(Launcher, GivesEachRankItsEnvironmentAndLog) {
  ::unsetenv("OMP_NUM_THREADS");
  start({"--steps", "2"},
        {.nproc_per_node = 2, .nnodes = 2, .node_rank = 1, .master_addr = "here", .master_port = 4711});
  EXPECT_EQ(finish(), 0) << text("err");
  EXPECT_THAT(
      log(2),
      AllOf(
          HasSubstr("RANK=2 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=here MASTER_PORT=4711 "),
          HasSubstr("OMP_NUM_THREADS="), Not(HasSubstr("OMP_NUM_THREADS= ")),
          HasSubstr("rank 2: step 2 done"), Not(HasSubstr("rank 3"))));
  EXPECT_THAT(log(3), HasSubstr("RANK=3 WORLD_SIZE=4 LOCAL_RANK=1"));
  EXPECT_EQ(text("out"), "") << "rank 0 is on another machine";
}

TEST_F(Launcher, ShowsRankZeroAndPicksAPort) {
  start({"--steps", "2"});
  EXPECT_EQ(finish(), 0) << text("err");
  EXPECT_THAT(text("out"), AllOf(HasSubstr("rank 0: step 2 done"), Not(HasSubstr("rank 1"))));
  EXPECT_THAT(log(1),
              AllOf(HasSubstr("MASTER_ADDR=127.0.0.1 MASTER_PORT="), Not(HasSubstr("MASTER_PORT=0 "))));
}

TEST_F(Launcher, RanksOfAStartShareARandomToken) {
  ::unsetenv("COLONNADE_JOB_TOKEN");
  start({"--steps", "2", "--fault", "kill", "--once", "yes"}, {.max_restarts = 1});
  EXPECT_EQ(finish(), 0) << text("err");
  const auto tokens = [&](int rank) {
    std::vector<std::string> found;
    const std::string all = log(rank), name = "COLONNADE_JOB_TOKEN=";
    for (std::size_t at = 0; (at = all.find(name, at)) != std::string::npos;) {
      at += name.size();
      found.push_back(all.substr(at, all.find(' ', at) - at));
    }
    return found;
  };
  const std::vector<std::string> first = tokens(0);
  EXPECT_THAT(first, testing::SizeIs(2));
  EXPECT_THAT(first, testing::Each(testing::SizeIs(32)));
  EXPECT_NE(first.front(), first.back());
  for (const int rank : {1, 2}) EXPECT_EQ(tokens(rank), first);
}

TEST_F(Launcher, SetsNoTokenOnSeveralNodes) {
  ::unsetenv("COLONNADE_JOB_TOKEN");
  start({"--steps", "1"}, {.nproc_per_node = 2, .nnodes = 2, .master_addr = "here", .master_port = 4711});
  EXPECT_EQ(finish(), 0) << text("err");
  EXPECT_THAT(log(0), HasSubstr("COLONNADE_JOB_TOKEN= "));
}

TEST(FreePort, IsOutsideTheEphemeralRange) {
  int first = 0, last = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  if (first <= 20'000 && last >= 60'000) GTEST_SKIP() << "almost every port is ephemeral here";
  for (int i = 0; i < 100; ++i) {
    const int port = free_port();
    EXPECT_TRUE(port >= 10'000 && port <= 65'535 && (port < first || port > last)) << port;
  }
}

TEST_F(Launcher, ShowsAStatusLineOnATerminal) {
  terminal_ = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal_ < 0 || ::grantpt(terminal_) != 0)
    GTEST_SKIP() << "this machine has no pseudo-terminals: /dev/pts is not mounted";
  ASSERT_EQ(::unlockpt(terminal_), 0);
  start({"--steps", "20"});
  EXPECT_EQ(finish(), 0);
  std::string shown(1 << 16, '\0');
  shown.resize(static_cast<std::size_t>(std::max<ssize_t>(::read(terminal_, shown.data(), shown.size()), 0)));
  ::close(terminal_);
  EXPECT_THAT(shown, AllOf(HasSubstr("\r\x1b[Kstep "), HasSubstr("forward-backward; 3 ranks")));
}

struct Death {
  std::string fault;
  int exit_code;
  std::string words;
};

TEST_F(Launcher, NamesADeadRankWithinSecondsAndStopsTheOthers) {
  for (const Death& death :
       {Death{"exit:1", 4, "was lost: exit code 1 (failed)"},
        Death{"exit:2", 2, "ended with exit code 2 (settings wrong)"},
        Death{"exit:3", 3, "ended with exit code 3 (data"}, Death{"segv", 4, "was lost: killed by SIGSEGV"},
        Death{"kill", 4, "was lost: killed by SIGKILL"}}) {
    start({"--fault", death.fault}, {.max_restarts = death.exit_code == 4 ? 0 : 3, .grace_period_s = 0.2});
    EXPECT_EQ(finish(), death.exit_code) << text("err");
    EXPECT_LT(seconds_, kSoonS) << death.fault;
    EXPECT_THAT(text("err"),
                AllOf(HasSubstr("rank 1 " + death.words),
                      HasSubstr("step 2, phase data, last operation 'grad bucket 1'"),
                      HasSubstr("last lines of " + (folder_ / "logs/rank_1.log").string()),
                      HasSubstr("  | about to fail: " + death.fault), Not(HasSubstr("restart "))));
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_FALSE(is_alive(pid_of(rank))) << death.fault << " rank " << rank;
    fs::remove(folder_ / "err");
  }
}

TEST_F(Launcher, NamesTheCulpritNotTheRankThatNoticed) {
  start({"--fault", "hang", "--peers", "exit4"}, {.grace_period_s = 0.2});
  EXPECT_EQ(finish(), 4);
  EXPECT_LT(seconds_, kSoonS);
  EXPECT_THAT(text("err"),
              AllOf(HasSubstr("rank 1 does not respond"), HasSubstr("ranks 0, 2 wait in 'grad bucket 3'"),
                    HasSubstr("rank 1 is missing there")));
}

TEST_F(Launcher, NamesAStoppedRank) {
  start({"--fault", "stop"}, {.grace_period_s = 0.2});
  EXPECT_EQ(finish(), 4);
  EXPECT_LT(seconds_, kSoonS);
  EXPECT_THAT(text("err"), HasSubstr("rank 1 was lost: stopped (SIGSTOP)"));
  EXPECT_FALSE(is_alive(pid_of(1)));
}

TEST_F(Launcher, NamesAHungRankAndTheRanksWaitingForIt) {
  start({"--fault", "hang"}, {.hang_timeout_s = 2, .grace_period_s = 0.2});
  EXPECT_EQ(finish(), 4);
  EXPECT_LT(seconds_, kSoonS);
  EXPECT_THAT(
      text("err"),
      AllOf(HasSubstr("rank 1 does not respond: no heartbeat for"),
            HasSubstr(
                "ranks 0, 2 wait in 'grad bucket 3' (dp of ranks 0, 1, 2; number 2); rank 1 is missing")));
}

TEST_F(Launcher, ReportsAStragglerOnceAndKillsItOnlyAtTheTimeout) {
  start({"--fault", "hang"}, {.hang_timeout_s = 6.5, .grace_period_s = 0.2});
  EXPECT_EQ(finish(), 4);
  const std::string all = text("err");
  EXPECT_EQ(all.find("is late"), all.rfind("is late")) << all;
  const std::string before_time_out = all.substr(0, all.find("rank 1 does not respond"));
  EXPECT_LT(before_time_out.size(), all.size()) << all;
  EXPECT_THAT(before_time_out,
              testing::ContainsRegex("rank 1 is late: ranks 0, 2 have waited up to [5-9]\\."));
  EXPECT_THAT(before_time_out,
              AllOf(HasSubstr("for it in 'grad bucket 3' (dp of ranks 0, 1, 2; number 2); it is "
                              "at step 2, phase data, last operation 'grad bucket 1'"),
                    Not(HasSubstr("was lost"))));
}

TEST_F(Launcher, SignalsAreForwardedOnceAndRanksSave) {
  for (const int signal : {SIGINT, SIGTERM}) {
    start({"--steps", "1000"}, {.max_restarts = 2});
    wait_for("step 2 done");
    ::kill(pid_, signal);
    EXPECT_EQ(finish(), 5) << text("err");
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_THAT(log(rank), HasSubstr(fmt::format("saved after signal {}", signal)));
    fs::remove_all(folder_ / "logs");
  }
}

TEST_F(Launcher, SignalBeforeTheFirstStepIsAStopEvenIfItKillsRanks) {
  for (const int signal : {SIGINT, SIGTERM}) {
    start({"--start-ms", "60000", "--on-term", "die"}, {.max_restarts = 2});
    wait_for("pid=");
    ::kill(pid_, signal);
    EXPECT_EQ(finish(), 5) << text("err");
    EXPECT_LT(seconds_, kSoonS);
    EXPECT_THAT(text("err"), Not(HasSubstr("was lost")));
    fs::remove_all(folder_ / "logs");
  }
}

TEST_F(Launcher, RankThatStopsBeforeTheFirstStepStopsTheOthers) {
  for (const char* peers : {"wait", "exit4"}) {
    start({"--at-step", "0", "--fault", "exit:5", "--peers", peers},
          {.max_restarts = 2, .grace_period_s = 0.2});
    EXPECT_EQ(finish(), 5) << text("err");
    EXPECT_LT(seconds_, kSoonS);
    EXPECT_THAT(text("err"), HasSubstr("rank 1 was asked to stop before the first step"));
    fs::remove_all(folder_ / "logs");
  }
}

TEST_F(Launcher, SecondSignalKillsTheRanks) {
  start({"--steps", "100000", "--on-term", "ignore"}, {.max_restarts = 2});
  wait_for("step 2 done");
  ::kill(pid_, SIGTERM);
  for (int i = 0; i < 1000 && text("err").find("are asked") == std::string::npos; ++i) sleep_ms(10);
  ::kill(pid_, SIGTERM);  // too soon: the same request sent twice
  sleep_ms(1200);
  EXPECT_TRUE(is_alive(pid_of(0)));
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(finish(), 4);
  EXPECT_LT(seconds_, kSoonS);
  for (int rank = 0; rank < 3; ++rank) EXPECT_FALSE(is_alive(pid_of(rank)));
}

TEST_F(Launcher, LeavesNoOrphansWhenKilled) {
  start({"--steps", "100000", "--on-term", "ignore"});
  wait_for("step 1 done");
  ::kill(pid_, SIGKILL);
  EXPECT_EQ(finish(), 128 + SIGKILL);
  for (int rank = 0; rank < 3; ++rank) {
    for (int i = 0; i < 200 && is_alive(pid_of(rank)); ++i) sleep_ms(10);
    EXPECT_FALSE(is_alive(pid_of(rank))) << "rank " << rank;
  }
}

TEST_F(Launcher, RestartsAllRanksAfterALostRank) {
  start({"--fault", "kill", "--once", "yes"}, {.max_restarts = 2, .grace_period_s = 0.2});
  EXPECT_EQ(finish(), 0) << text("err");
  EXPECT_THAT(text("err"), AllOf(HasSubstr("rank 1 was lost: killed by SIGKILL"), HasSubstr("restart 1 of 2"),
                                 Not(HasSubstr("restart 2"))));
  EXPECT_THAT(log(0), AllOf(HasSubstr("COLONNADE_RESTART_COUNT=0"), HasSubstr("COLONNADE_RESTART_COUNT=1"),
                            HasSubstr("rank 0: step 3 done")));
}

TEST_F(Launcher, AgreedExitKeepsItsCodeAndIsNotRestarted) {
  for (const int code : {1, 2}) {
    start({"--fault", fmt::format("agreed:{}", code)}, {.max_restarts = 3, .grace_period_s = 0.2});
    EXPECT_EQ(finish(), code) << text("err");
    EXPECT_THAT(text("err"),
                AllOf(HasSubstr(fmt::format("ranks 0, 1, 2 ended with exit code {}, as all", code)),
                      Not(HasSubstr("was lost")), Not(HasSubstr("restart "))));
    EXPECT_THAT(text("out"), HasSubstr("error: the disk is full"));
    for (const char* name : {"err", "out"}) fs::remove(folder_ / name);
  }
}

TEST_F(Launcher, OutputReachesTheTerminalEvenIfTheLogDiskIsFull) {
  fs::create_directories(folder_ / "logs");
  for (int rank = 0; rank < 3; ++rank)
    fs::create_symlink("/dev/full", folder_ / fmt::format("logs/rank_{}.log", rank));
  start({"--fault", "exit:1"}, {.grace_period_s = 0.2});
  EXPECT_EQ(finish(), 4) << text("err");
  EXPECT_THAT(text("out"), HasSubstr("rank 0: step 1 done"));
  EXPECT_THAT(
      text("err"),
      AllOf(HasSubstr("rank_0.log: some output was not written; No space left on device, "),
            HasSubstr(" free of "), HasSubstr("the rank continues"), HasSubstr("  | about to fail: exit:1")));
}

TEST_F(Launcher, OutputOfAKilledRankIsKept) {
  start({"--steps", "100000", "--on-term", "ignore", "--step-ms", "1"}, {.grace_period_s = 0.1});
  wait_for("step 2 done");
  ::kill(pid_, SIGTERM);
  sleep_ms(1100);
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(finish(), 4);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(log(rank).back(), '\n') << "complete lines";
}

TEST_F(Launcher, LargeOutputDoesNotBlockRanks) {
  start({"--steps", "30000", "--step-ms", "0"}, {.nproc_per_node = 2, .monitor_interval_s = 5});
  EXPECT_EQ(finish(), 0) << text("err");
  EXPECT_LT(seconds_, 60);
  EXPECT_THAT(text("out"), HasSubstr("rank 0: step 30000 done"));
  EXPECT_THAT(log(1), HasSubstr("rank 1: step 30000 done"));
}

TEST_F(Launcher, SecondLauncherWithTheSameLogFolderIsRejected) {
  start({"--steps", "100000"});
  wait_for("step 2 done");
  const pid_t first = pid_;
  start({"--steps", "1"});
  EXPECT_EQ(finish(), 2);
  EXPECT_THAT(text("err"),
              AllOf(HasSubstr("error: --log-dir: one process at a time may write the folder; got " +
                              (folder_ / "logs").string()),
                    HasSubstr(fmt::format("pid {}, since", first))));
  EXPECT_THAT(log(0), Not(HasSubstr("--- rank 0 of 3, restart 0 ---\n--- rank")));
  start({"--steps", "1"},
        {.nproc_per_node = 3, .nnodes = 2, .node_rank = 1, .master_addr = "here", .master_port = 4711});
  EXPECT_EQ(finish(), 0) << "another node of the same run: " << text("err");
  pid_ = first;
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(finish(), 5);
  EXPECT_FALSE(fs::exists(folder_ / "logs/launcher_0.txt"));
}

TEST_F(Launcher, DefaultLogFolderIsNewForEachRun) {
  const fs::path named = folder_ / "logs/now";
  const LogFolder first(named, /*is_new=*/true, 0);
  const LogFolder second(named, /*is_new=*/true, 0);
  EXPECT_EQ(first.path(), named);
  EXPECT_EQ(second.path(), named.string() + "-2");
}

TEST_F(Launcher, FailsWhenNoRestartIsLeft) {
  start({"--fault", "exit:7", "--peers", "exit4"}, {.max_restarts = 1, .grace_period_s = 0.2});
  EXPECT_EQ(finish(), 4);
  EXPECT_THAT(text("err"),
              AllOf(HasSubstr("exit code 7"), HasSubstr("restart 1 of 1"), Not(HasSubstr("restart 2"))));
}

/// The log of rank 3 of 6 is a FIFO: the launcher cannot start that rank until the test opens it.
class SlowStart : public Launcher {
 protected:
  void start_slowly(const std::vector<std::string>& flags) {
    fs::create_directories(folder_ / "logs");
    ASSERT_EQ(::mkfifo((folder_ / "logs/rank_3.log").c_str(), 0600), 0);
    start(flags, {.nproc_per_node = 6, .grace_period_s = 0.2});
    wait_for("--- rank ");  // the ranks' output is copied once the launcher continues
    sleep_ms(300);
  }
  void resume_start() { pipe_ = ::open((folder_ / "logs/rank_3.log").c_str(), O_RDONLY | O_NONBLOCK); }
  void TearDown() override {
    if (pipe_ >= 0) ::close(pipe_);
    Launcher::TearDown();
  }

 private:
  int pipe_ = -1;
};

TEST_F(SlowStart, SignalsAreHandledBetweenRankStarts) {
  start_slowly({"--start-ms", "60000", "--on-term", "die"});
  ::kill(pid_, SIGTERM);
  resume_start();
  EXPECT_EQ(finish(), 5) << text("err");
  EXPECT_LT(seconds_, kSoonS);
  EXPECT_THAT(text("err"),
              AllOf(HasSubstr("SIGTERM: the ranks are asked"), HasSubstr("4 of 6 ranks were started")));
  EXPECT_FALSE(fs::exists(folder_ / "logs/rank_4.log"));
}

TEST_F(SlowStart, NoRankIsStartedAfterAFailure) {
  start_slowly({"--at-step", "0", "--faulty-rank", "0", "--fault", "exit:2", "--start-ms", "1000"});
  sleep_ms(3000);
  resume_start();
  EXPECT_EQ(finish(), 2) << text("err");
  EXPECT_THAT(text("err"),
              AllOf(HasSubstr("rank 0 ended with exit code 2"), HasSubstr("4 of 6 ranks were started")));
  EXPECT_FALSE(fs::exists(folder_ / "logs/rank_4.log"));
}

/// Runs `command` in `folder`, without --log-dir.
int run_in(const fs::path& folder, int ranks, std::vector<std::string> command) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
    if (::chdir(folder.c_str()) != 0) ::_exit(77);
    try {
      ::_exit(run({.nproc_per_node = ranks, .grace_period_s = 0.2, .command = std::move(command)}));
    } catch (const ConfigError&) {
      ::_exit(kExitSettings);
    }
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WEXITSTATUS(status);
}

TEST_F(Launcher, LogsAreKeptUnlessTheProgramDoesNotExist) {
  EXPECT_EQ(run_in(folder_, 2, {"/no/such/program", "--save", "run"}), 2);
  EXPECT_TRUE(fs::is_empty(folder_)) << "left: " << fs::directory_iterator(folder_)->path();
  const std::vector<std::string> rejecting{
      COLONNADE_FAKE_RANK, "--at-step", "0", "--faulty-rank", "0", "--fault", "exit:2", "--save", "run"};
  EXPECT_EQ(run_in(folder_, 1, rejecting), 2);
  EXPECT_THAT(text("run/logs/rank_0.log"), HasSubstr("about to fail"))
      << "a rank may run for hours before it rejects its input";
}

TEST_F(Launcher, UnwritableLogIsAConfigError) {
  fs::create_directories(folder_ / "logs");
  fs::create_symlink("rank_0.log", folder_ / "logs/rank_0.log");
  start({});
  EXPECT_EQ(finish(), 2) << text("err");
  EXPECT_THAT(text("err"), HasSubstr("rank_0.log: a rank's log must be writable; got 'Too many levels of"));
}

TEST_F(Launcher, MissingProgramIsAConfigError) {
  Options options{.command = {"/no/such/program"}};
  options.log_dir = folder_ / "logs";
  try {
    run(options);
    FAIL() << "started";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("/no/such/program"), HasSubstr("No such file")));
  }
}

}  // namespace
}  // namespace colonnade::launch
