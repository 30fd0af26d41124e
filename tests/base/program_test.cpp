// run_as_program: exit codes, error lines, flushed output.
#include "colonnade/base/program.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <new>

#include "colonnade/base/error.h"
#include "colonnade/base/progress.h"

namespace colonnade {
namespace {

using testing::ExitedWithCode;

/// A program body that throws.
template <typename E>
std::function<int()> throws(const E& error) {
  return [error]() -> int { throw error; };
}

TEST(Program, ReturnsZeroOnSuccess) {
  EXPECT_EQ(run_as_program([] { return 0; }), 0);
}

TEST(ProgramDeathTest, ExceptionsBecomeExitCodesAndErrorLines) {
  const auto exits = [](const std::function<int()>& body, int code, const char* text) {
    EXPECT_EXIT(run_as_program(body), ExitedWithCode(code), text);
  };
  exits(throws(ConfigError("a must be b; got c; write b")), 2, "^error: a must be b; got c; write b\n$");
  exits(throws(ConfigError("2 settings are wrong:\n  a\n  b")), 2, "^error: 2 .*\nerror:   a\nerror:   b\n$");
  exits(throws(DataError("damaged")), 3, "^error: damaged\n$");
  exits(throws(CommError("lost")), 4, "^error: lost\n$");
  exits(throws(StopRequested("stopped as requested")), 5, "^stopped as requested\n$");
  exits(throws(Error("failed")), 1, "^error: failed\n$");
  exits(throws(std::runtime_error("of another library")), 1, "^error: of another library\n$");
  exits(throws(std::bad_alloc()), 1, "^error: out of memory on this machine");
  exits([] { return 7; }, 7, "^$");
}

TEST(ProgramDeathTest, TheLauncherReceivesTheMessage) {
  const auto path = std::filesystem::temp_directory_path() / ("program-" + std::to_string(::getpid()));
  Progress page(path);
  const auto body = [&] {
    const ProgressScope scope(page);
    run_as_program(throws(DataError("d.bin: is damaged")));
  };
  EXPECT_EXIT(body(), ExitedWithCode(3), "damaged");
  EXPECT_EQ(page.read().note, "d.bin: is damaged");
  std::filesystem::remove(path);
}

/// A global whose destructor exits with code 99.
struct Trap {
  ~Trap() { ::_exit(99); }
};

TEST(ProgramDeathTest, OutputIsFlushedAndGlobalsAreNotDestroyed) {
  const auto body = []() -> int {
    static const Trap trap;
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
    std::fputs("half a line", stdout);
    throw Error("failed");
  };
  EXPECT_EXIT(run_as_program(body), ExitedWithCode(1), "half a line");
}

TEST(ProgramDeathTest, SigxfszIsIgnored) {
  EXPECT_EXIT(run_as_program([] { return ::raise(SIGXFSZ) == 0 ? 8 : 9; }), ExitedWithCode(8), "");
}

}  // namespace
}  // namespace colonnade
