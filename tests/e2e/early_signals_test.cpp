// A signal at any moment of a rank's start, even while LibTorch is loading: the rank ends with 5 and no rank
// is reported as lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <array>
#include <chrono>
#include <sstream>
#include <thread>

#include "program.h"

namespace colonnade::e2e {
namespace {

namespace fs = std::filesystem;

/// Loading takes about 300 ms; the last signals arrive after it.
constexpr int kStarts = 10, kApartMs = 37;

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

bool blocks_sigterm(pid_t process) {
  const std::string status = read_text(fs::path("/proc") / std::to_string(process) / "status");
  const std::size_t mask = status.find("SigBlk:");
  return mask != std::string::npos &&
         (std::stoull(status.substr(mask + 7), nullptr, 16) >> (SIGTERM - 1) & 1U) != 0;
}

/// Busy waiting, without the pauses of Program::wait_until.
template <typename Done>
void wait_for(const Done& done) {
  for (const double end = now_s() + 20; !done() && now_s() < end;) std::this_thread::yield();
  EXPECT_TRUE(done());
}

Words long_run() { return small_gpt() + Words{"--train-iters", "100000", "--eval-iters", "0"}; }

TEST(EarlySignals, EndAnUnsupervisedRankWithFive) {
  for (int i = 0; i < kStarts; ++i) {
    Program rank(colonnade(long_run()));
    wait_for([&] { return blocks_sigterm(rank.pid()); });  // exec has finished
    sleep_ms(i * kApartMs);
    rank.send(std::array{SIGTERM, SIGINT, SIGHUP}[static_cast<std::size_t>(i % 3)]);
    const Result result = rank.finish();
    EXPECT_EQ(result.code, 5) << i * kApartMs << " ms after exec: " << result.text;
  }
}

TEST(EarlySignals, EndARankOfTheLauncherWithFiveFromTheFirstMoment) {
  for (int i = 0; i < kStarts; ++i) {
    const TempFolder folder;
    Program launcher(launch(2, folder.path(), long_run()));
    std::vector<pid_t> ranks;
    wait_for([&] { return !(ranks = descendants(launcher.pid())).empty(); });
    sleep_ms(i * kApartMs);
    ::kill(ranks.front(), SIGTERM);
    const Result result = launcher.finish();
    EXPECT_EQ(result.code, 5) << i * kApartMs << " ms after it was started: " << result.text;
    EXPECT_THAT(result.text, testing::Not(testing::HasSubstr("was lost")));
  }
}

TEST(EarlySignals, EndTheLauncherWithFive) {
  for (int ms : {0, 60, 120, 180, 240}) {
    const TempFolder folder;
    Program launcher(launch(2, folder.path(), long_run()));
    wait_for([&] { return blocks_sigterm(launcher.pid()); });
    sleep_ms(ms);
    launcher.send(SIGTERM);
    const Result result = launcher.finish();
    EXPECT_EQ(result.code, 5) << ms << " ms after exec: " << result.text;
  }
}

/// A verb without anything to save ends as any program does, even while it waits.
TEST(EarlySignals, EndOtherVerbs) {
  const TempFolder folder;
  const std::string pipe = (folder / "settings.yaml").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  Program plan(colonnade({"plan", "--config", pipe}));
  wait_for([&] { return blocks_sigterm(plan.pid()); });
  wait_for([&] { return !blocks_sigterm(plan.pid()); });
  plan.send(SIGTERM);
  EXPECT_EQ(plan.finish().code, 128 + SIGTERM);
}

}  // namespace
}  // namespace colonnade::e2e
