// Parsing of COLONNADE_FAULT, and faults at the named injection point only.
#include "colonnade/fault/inject.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "colonnade/base/error.h"
#include "colonnade/base/progress.h"

namespace colonnade::fault {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Inject, ReadsEveryWord) {
  const Plan plan = parse("rank=2 step=4 at=optimizer signal=TERM restart=1 sleep=0.5 throw=1");
  EXPECT_EQ(plan.at, "optimizer");
  EXPECT_EQ(plan.rank, 2);
  EXPECT_EQ(plan.step, 4);
  EXPECT_EQ(plan.restart, 1);
  EXPECT_EQ(plan.signal, SIGTERM);
  EXPECT_EQ(plan.sleep_s, 0.5);
  EXPECT_TRUE(plan.throws);
}

TEST(Inject, KillsIfNoOtherActionIsGiven) {
  EXPECT_EQ(parse("at=data").signal, SIGKILL);
  EXPECT_EQ(parse("at=data sleep=1").signal, 0);
  EXPECT_EQ(parse("at=data throw=1").signal, 0);
}

TEST(Inject, ReportsEveryInvalidWord) {
  try {
    parse("at=optimiser rank=two when=now signal=HARD");
    FAIL() << "accepted";
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("did you mean optimizer?"), HasSubstr("rank=two"),
                                HasSubstr("'when'"), HasSubstr("signal=HARD"), HasSubstr("unset it")));
  }
  EXPECT_THROW(parse("rank=1"), ConfigError);
  EXPECT_THROW(parse("at=data step=-1"), ConfigError);
}

TEST(Inject, AppliesToTheNamedRankStepAndRestart) {
  const Plan plan = parse("at=data rank=1 step=3 restart=0");
  EXPECT_TRUE(applies(plan, "data", 1, 3, 0));
  EXPECT_FALSE(applies(plan, "forward", 1, 3, 0));
  EXPECT_FALSE(applies(plan, "data", 0, 3, 0));
  EXPECT_FALSE(applies(plan, "data", 1, 2, 0));
  EXPECT_FALSE(applies(plan, "data", 1, 3, 1));
  EXPECT_TRUE(applies(parse("at=data"), "data", 7, -1, 5));
}

/// Runs two steps of a rank in a process with COLONNADE_FAULT. Returns its exit code, or 128 + the signal.
int run_steps(const char* text, int rank) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("COLONNADE_FAULT", text, 1);
    progress().set_rank(rank, 2);
    try {
      for (int step = 1; step <= 2; ++step) {
        progress().set_step(step);
        for (const std::string_view name : kPoints) point(name);
      }
    } catch (const ConfigError&) {
      ::_exit(kExitSettings);
    } catch (const Error&) {
      ::_exit(10 + static_cast<int>(progress().read().step));
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(Inject, TriggersOnceAtTheNamedPoint) {
  EXPECT_EQ(run_steps("at=losses rank=1 step=2", 1), 128 + SIGKILL);
  EXPECT_EQ(run_steps("at=losses rank=1 step=2", 0), 0);
  EXPECT_EQ(run_steps("at=losses step=3", 0), 0);
  EXPECT_EQ(run_steps("at=saved step=2 throw=1", 0), 12);
  EXPECT_EQ(run_steps("at=nowhere", 0), kExitSettings);
  EXPECT_EQ(run_steps("", 0), 0);
}

}  // namespace
}  // namespace colonnade::fault
