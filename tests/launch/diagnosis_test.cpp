// Failure diagnosis from hand-made rank views.
#include "colonnade/launch/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace colonnade::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr Timeouts kTimeouts{.stopped_s = 2, .silent_s = 10, .lost_peer_s = 2};

/// A rank that has finished `done` collectives of dp = {0, 1, 2}.
RankView running(int rank, std::uint64_t done) {
  RankView view{.rank = rank};
  view.page.opened = true;
  view.page.rank = rank;
  view.page.step = 12;
  view.page.phase = "data";
  view.page.groups = {{"dp", {0, 1, 2}, done, done}};
  return view;
}

/// The same, blocked in the next one.
RankView waiting(int rank, std::uint64_t done) {
  RankView view = running(rank, done);
  view.page.groups[0].started = done + 1;
  view.page.waiting = CollectiveMark{"grad bucket 3", "dp", {0, 1, 2}, done + 1, -1, 0};
  return view;
}

RankView ended(RankView view, int code, int signal = 0) {
  view.exit = ExitStatus{code, signal, false};
  return view;
}

TEST(Diagnosis, IsEmptyWhileRanksRunOrFinish) {
  EXPECT_FALSE(diagnose(std::vector{running(0, 1), waiting(1, 1)}, kTimeouts, 0));
  EXPECT_FALSE(diagnose(std::vector{ended(running(0, 1), 0), ended(running(1, 1), 5)}, kTimeouts, 0));
}

TEST(Diagnosis, DeadRankIsNamedWithItsPosition) {
  const auto diagnosis =
      diagnose(std::vector{waiting(0, 4), ended(running(1, 4), 0, 11), waiting(2, 4)}, kTimeouts, 0);
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(diagnosis->exit_code, 4);
  EXPECT_THAT(diagnosis->culprits, ElementsAre(1));
  EXPECT_THAT(diagnosis->lines,
              ElementsAre(HasSubstr("rank 1 was lost: killed by SIGSEGV (signal 11); step 12, phase data"),
                          "ranks 0, 2 wait in 'grad bucket 3' (dp of ranks 0, 1, 2; number 5); "
                          "rank 1 is missing there"));
}

TEST(Diagnosis, RejectedSettingsAndDataKeepTheirCodeIfOthersFailToo) {
  for (const int code : {2, 3}) {
    const auto diagnosis =
        diagnose(std::vector{ended(waiting(0, 4), 4), ended(running(1, 4), code)}, kTimeouts, 0);
    ASSERT_TRUE(diagnosis);
    EXPECT_EQ(diagnosis->exit_code, code);
    EXPECT_THAT(diagnosis->culprits, ElementsAre(1));
  }
}

TEST(Diagnosis, RanksRejectingSettingsAreNotLostAndShareOneLine) {
  RankView early = ended(running(0, 1), 2);
  early.page.step = -1;
  RankView other = early;
  other.rank = 1;
  const auto diagnosis = diagnose(std::vector{early, other, waiting(2, 4)}, kTimeouts, 0);
  ASSERT_TRUE(diagnosis);
  EXPECT_THAT(diagnosis->culprits, ElementsAre(0, 1));
  EXPECT_THAT(diagnosis->lines, ElementsAre("ranks 0, 1 ended with exit code 2 (settings wrong)"));
}

TEST(Diagnosis, AgreedExitIsNotALossAndKeepsItsCode) {
  for (const int code : {1, 2}) {
    RankView first = ended(running(0, 1), code);
    first.page.agreed_exit_code = code;
    RankView second = first;
    second.rank = 1;
    const auto diagnosis = diagnose(std::vector{first, second, waiting(2, 4)}, kTimeouts, 0);
    ASSERT_TRUE(diagnosis);
    EXPECT_EQ(diagnosis->exit_code, code);
    EXPECT_THAT(diagnosis->culprits, ElementsAre(0, 1));
    EXPECT_THAT(diagnosis->lines,
                ElementsAre(HasSubstr("ranks 0, 1 ended with exit code " + std::to_string(code) +
                                      ", as all ranks had agreed; step 12")));
  }
  RankView crashed = ended(running(0, 1), 0, 11);
  crashed.page.agreed_exit_code = 2;
  EXPECT_EQ(diagnose(std::vector{crashed, running(1, 1)}, kTimeouts, 0)->exit_code, 4)
      << "it did not exit as agreed";
}

TEST(Diagnosis, RankThatLostAPeerIsNotTheCulprit) {
  const std::vector ranks{ended(waiting(0, 4), 4), running(1, 4), waiting(2, 4)};
  EXPECT_FALSE(diagnose(ranks, kTimeouts, 1.0)) << "the cause may still exit";
  const auto diagnosis = diagnose(ranks, kTimeouts, 2.5);
  ASSERT_TRUE(diagnosis);
  EXPECT_THAT(diagnosis->culprits, ElementsAre(1));
}

TEST(Diagnosis, IfAllGaveUpTheMissingRankIsNamed) {
  const std::vector ranks{ended(waiting(0, 4), 4), ended(waiting(1, 3), 4), ended(waiting(2, 4), 4)};
  const auto diagnosis = diagnose(ranks, kTimeouts, 0);
  ASSERT_TRUE(diagnosis);
  EXPECT_THAT(diagnosis->culprits, ElementsAre(1));
}

TEST(Diagnosis, MissingRankIsTheCulpritOfAHang) {
  std::vector ranks{waiting(0, 4), running(1, 4), waiting(2, 4)};
  for (RankView& rank : ranks) rank.silent_s = 11;
  ranks[1].silent_s = 9.5;  // it was busy a little longer
  const auto diagnosis = diagnose(ranks, kTimeouts, 0);
  ASSERT_TRUE(diagnosis);
  EXPECT_THAT(diagnosis->culprits, ElementsAre(1));
  EXPECT_THAT(diagnosis->lines[0], HasSubstr("rank 1 does not respond: no heartbeat for 9.5 s"));
}

TEST(Diagnosis, PeerIsTheCulpritOfAMissingMessage) {
  std::vector ranks{running(0, 4), running(1, 4)};
  ranks[1].page.waiting = CollectiveMark{"stage 1 / activation 7", "pp", {0, 1}, 0, 0, 0};
  ranks[1].silent_s = 11;
  const auto diagnosis = diagnose(ranks, kTimeouts, 0);
  ASSERT_TRUE(diagnosis);
  EXPECT_THAT(diagnosis->culprits, ElementsAre(0));
  EXPECT_THAT(diagnosis->lines[1], HasSubstr("rank 1 waits in 'stage 1 / activation 7' (with rank 0)"));
}

TEST(Diagnosis, StoppedRankIsLostAfterItsTimeout) {
  std::vector ranks{waiting(0, 4), running(1, 4)};
  ranks[1].stopped_s = 1;
  EXPECT_FALSE(diagnose(ranks, kTimeouts, 0));
  ranks[1].stopped_s = 2.1;
  const auto diagnosis = diagnose(ranks, kTimeouts, 0);
  ASSERT_TRUE(diagnosis);
  EXPECT_THAT(diagnosis->lines[0], HasSubstr("rank 1 was lost: stopped (SIGSTOP)"));
}

constexpr std::int64_t kSecond = 1'000'000'000;

TEST(Straggler, IsNamedWithItsPosition) {
  const std::vector ranks{waiting(0, 4), running(1, 4), waiting(2, 4)};
  EXPECT_FALSE(find_straggler(ranks, 5, 4 * kSecond));
  const auto straggler = find_straggler(ranks, 5, 5 * kSecond);
  ASSERT_TRUE(straggler);
  EXPECT_EQ(straggler->rank, 1);
  EXPECT_EQ(
      straggler->line,
      "rank 1 is late: ranks 0, 2 have waited up to 5.0 s for it in 'grad bucket 3' (dp of ranks 0, 1, 2; "
      "number 5); it is at step 12, phase data, before the first named operation");
}

TEST(Straggler, IsTheEndOfAChainOfWaits) {
  std::vector ranks{running(0, 4), running(1, 4), running(2, 4)};
  ranks[0].page.waiting = CollectiveMark{"activation 1", "pp", {0, 1, 2}, 0, 1, 0};
  ranks[1].page.waiting = CollectiveMark{"activation 2", "pp", {0, 1, 2}, 0, 2, 2 * kSecond};
  const auto straggler = find_straggler(ranks, 5, 8 * kSecond);
  ASSERT_TRUE(straggler);
  EXPECT_EQ(straggler->rank, 2);
  EXPECT_THAT(straggler->line,
              HasSubstr("rank 1 has waited up to 6.0 s for it in 'activation 2' (with rank 2)"));
}

TEST(Straggler, IsTheFirstOfACycle) {
  std::vector ranks{running(0, 4), running(1, 4)};
  ranks[0].page.waiting = CollectiveMark{"activation 1", "pp", {0, 1}, 0, 1, 0};
  ranks[1].page.waiting = CollectiveMark{"gradient 1", "pp", {0, 1}, 0, 0, kSecond};
  const auto straggler = find_straggler(ranks, 5, 8 * kSecond);
  ASSERT_TRUE(straggler);
  EXPECT_EQ(straggler->rank, 1);
}

TEST(Straggler, IsNotNamedForARankOnAnotherMachine) {
  std::vector ranks{waiting(0, 4), waiting(1, 4)};  // rank 2 is elsewhere
  EXPECT_FALSE(find_straggler(ranks, 5, 8 * kSecond));
  ranks[0].page.waiting = CollectiveMark{"activation 1", "pp", {0, 1, 2}, 0, 1, 0};
  EXPECT_FALSE(find_straggler(ranks, 5, 8 * kSecond)) << "rank 1 waits for rank 2";
}

/// A rank before its first step.
RankView starting(int rank) {
  RankView view = running(rank, 0);
  view.page.step = -1;
  return view;
}

std::vector<int> codes_of(const std::vector<RankView>& ranks, bool asked) {
  std::vector<int> codes;
  for (const RankView& view : with_early_stops(ranks, asked))
    codes.push_back(!view.exit ? -1 : view.exit->signal != 0 ? 128 + view.exit->signal : view.exit->code);
  return codes;
}

TEST(EarlyStop, EarlyExitsAreStopsIfRanksWereAskedToStop) {
  const std::vector ranks{ended(starting(0), 0, SIGTERM), ended(starting(1), 4),
                          ended(starting(2), 0, SIGINT),  ended(starting(3), 2),
                          ended(starting(4), 0, SIGKILL), starting(5)};
  EXPECT_THAT(codes_of(ranks, true), ElementsAre(5, 5, 5, 2, 128 + SIGKILL, -1));
  EXPECT_THAT(codes_of(ranks, false), ElementsAre(128 + SIGTERM, 4, 128 + SIGINT, 2, 128 + SIGKILL, -1));
}

TEST(EarlyStop, StoppedRankExplainsLostPeers) {
  EXPECT_THAT(codes_of({ended(starting(0), 5), ended(starting(1), 4)}, false), ElementsAre(5, 5));
  EXPECT_THAT(codes_of({ended(running(0, 1), 5), ended(running(1, 1), 4)}, false), ElementsAre(5, 4))
      << "work is lost after a step";
  EXPECT_THAT(codes_of({ended(running(0, 1), 0, SIGTERM)}, true), ElementsAre(128 + SIGTERM));
}

TEST(Diagnosis, LocalRanksAreNotBlamedForARemoteRank) {
  std::vector ranks{waiting(0, 4)};  // ranks 1 and 2 are elsewhere
  ranks[0].silent_s = 11;
  const auto diagnosis = diagnose(ranks, kTimeouts, 0);
  ASSERT_TRUE(diagnosis);
  EXPECT_THAT(diagnosis->lines,
              ElementsAre(HasSubstr("waiting in 'grad bucket 3'"),
                          "rank 0 waits in 'grad bucket 3' (dp of ranks 0, 1, 2; number 5); all members on "
                          "this machine have arrived; see the launcher of ranks 1, 2"));
}

}  // namespace
}  // namespace colonnade::launch
