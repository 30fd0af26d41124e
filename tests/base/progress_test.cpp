// Progress page: reads return the written values, within a process and after SIGKILL of the writer.
#include "colonnade/base/progress.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "colonnade/base/error.h"

namespace colonnade {
namespace {

TEST(Progress, ReadsReturnTheWrittenValues) {
  Progress page;
  page.set_rank(3, 8);
  page.set_step(41);
  page.set_phase("forward-backward");
  page.set_note("a warning");
  const int tp = page.add_group("tp", std::vector{2, 3});
  const CollectiveTicket first = page.begin(tp, "layer 3 / attention.proj / sum");
  page.wait(first, "layer 3 / attention.proj / sum");
  ProgressSnapshot now = page.read();
  EXPECT_TRUE(now.opened);
  EXPECT_EQ(now.pid, ::getpid());
  EXPECT_EQ(now.rank, 3);
  EXPECT_EQ(now.world, 8);
  EXPECT_EQ(now.step, 41);
  EXPECT_EQ(now.phase, "forward-backward");
  EXPECT_EQ(now.note, "a warning");
  ASSERT_TRUE(now.waiting.has_value());
  EXPECT_EQ(now.waiting->what, "layer 3 / attention.proj / sum");
  EXPECT_EQ(now.waiting->axes, "tp");
  EXPECT_EQ(now.waiting->members, (std::vector{2, 3}));
  EXPECT_EQ(now.waiting->sequence, 1U);
  page.end(first);
  now = page.read();
  EXPECT_FALSE(now.waiting.has_value());
  ASSERT_TRUE(now.last.has_value());
  EXPECT_EQ(now.last->what, "layer 3 / attention.proj / sum");
  ASSERT_EQ(now.groups.size(), 1U);
  EXPECT_EQ(now.groups[0].started, 1U);
  EXPECT_EQ(now.groups[0].finished, 1U);
}

TEST(Progress, NumbersCollectivesPerGroupButNotMessages) {
  Progress page;
  const int tp = page.add_group("tp", std::vector{0, 1});
  const int dp = page.add_group("dp", std::vector{0, 4});
  EXPECT_NE(tp, dp);
  EXPECT_EQ(page.add_group("tp", std::vector{0, 1}), tp);
  EXPECT_EQ(page.begin(tp, "a").sequence, 1U);
  EXPECT_EQ(page.begin(dp, "b").sequence, 1U);
  EXPECT_EQ(page.begin(tp, "to the next stage", /*peer=*/4).sequence, 0U);
  EXPECT_EQ(page.read().last->peer, 4);
  EXPECT_EQ(page.begin(tp, "c").sequence, 2U);
}

TEST(Progress, KeepsTheMembersOfLargeGroups) {
  Progress page;
  std::vector<int> strided(1024);
  for (int i = 0; i < 1024; ++i) strided[static_cast<std::size_t>(i)] = 5 + 8 * i;
  const std::vector<int> mixed{0, 1, 2, 3, 9, 11, 40};
  page.add_group("dp", strided);
  page.add_group("ep", mixed);
  page.add_group("pp", std::vector{0, 64});
  const ProgressSnapshot now = page.read();
  EXPECT_EQ(now.groups[0].members, strided);
  EXPECT_EQ(now.groups[1].members, mixed);
  EXPECT_EQ(now.groups[2].members, (std::vector{0, 64}));
}

TEST(Progress, TruncatesLongTextsAndDropsExcessGroups) {
  Progress page;
  page.set_phase(std::string(1000, 'x'));
  EXPECT_EQ(page.read().phase, std::string(39, 'x'));
  int last = 0;
  for (int i = 0; i < 100; ++i) last = page.add_group("tp", std::vector{i, i + 1});
  EXPECT_EQ(last, -1);
  page.begin(last, "still named");
  EXPECT_EQ(page.read().last->what, "still named");
}

TEST(Progress, EveryWriteIsAHeartbeat) {
  Progress page;
  const std::int64_t before = page.read().heartbeat_ns;
  EXPECT_LE(before, monotonic_ns());
  page.heartbeat();
  EXPECT_GT(page.read().heartbeat_ns, before);
}

/// A child writes texts of one repeated letter until it is killed; the reader must never see a mixture.
TEST(Progress, ReaderSeesConsistentValuesOfAKilledWriter) {
  const int fd = ::memfd_create("page", 0);
  const ProgressReader reader(fd);
  EXPECT_FALSE(reader.read().opened);
  for (int round = 0; round < 10; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      Progress page(fmt::format("/proc/self/fd/{}", fd));
      for (int i = 0;; ++i) page.set_note(std::string(300, static_cast<char>('a' + i % 26)));
    }
    while (reader.read().pid != child || reader.read().note.size() != 300) std::this_thread::yield();
    for (int i = 0; i < 2000; ++i) {
      if (i == 1000) ::kill(child, SIGKILL);
      const std::string note = reader.read().note;
      if (!note.empty()) {  // empty: every attempt was overtaken by a write
        ASSERT_EQ(note, std::string(300, note.front()));
      }
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(reader.read().note.size(), 300U);
  }
  ::close(fd);
}

TEST(Progress, ThrowsIfThePageCannotBeOpened) {
  EXPECT_THROW(Progress(std::filesystem::path("/nowhere/at/all")), Error);
}

TEST(Progress, ScopeGivesAThreadItsOwnPage) {
  Progress& process = progress();
  process.set_step(7);
  std::vector<Progress> pages(2);
  const auto rank = [&](int r) {
    const ProgressScope scope(pages[static_cast<std::size_t>(r)]);
    progress().set_step(100 + r);
  };
  std::thread a(rank, 0);
  std::thread b(rank, 1);
  a.join();
  b.join();
  EXPECT_EQ(pages[0].read().step, 100);
  EXPECT_EQ(pages[1].read().step, 101);
  EXPECT_EQ(process.read().step, 7);
}

}  // namespace
}  // namespace colonnade
