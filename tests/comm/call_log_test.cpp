// Detection of mismatched calls in communication logs.
#include "colonnade/comm/call_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace colonnade::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::shared_ptr<const std::vector<int>> members(std::vector<int> ranks) {
  return std::make_shared<const std::vector<int>>(std::move(ranks));
}
const auto kPair = members({0, 1});

LoggedCall sum(const char* what, std::vector<std::int64_t> shape = {4}, const char* axes = "tp") {
  return {.ranks = kPair, .axes = axes, .operation = "all_reduce", .what = what, .shape = std::move(shape)};
}
LoggedCall message(const char* operation, int peer, int tag, std::vector<std::int64_t> shape = {4}) {
  return {.ranks = kPair,
          .axes = "pp",
          .operation = operation,
          .what = "x",
          .shape = std::move(shape),
          .peer = peer,
          .tag = tag};
}
LoggedCall exchange(std::vector<std::int64_t> sent, std::vector<std::int64_t> received) {
  return {.ranks = kPair,
          .axes = "ep",
          .operation = "all_to_all",
          .what = "rows",
          .shape = {sent[0] + sent[1], 8},
          .rows = {.received = std::move(received), .sent = std::move(sent)}};
}

TEST(CallMismatches, AcceptEqualCalls) {
  EXPECT_THAT(call_mismatches({{0, {sum("a"), message("send", 1, 0), sum("b"), exchange({1, 2}, {1, 5})}},
                               {1, {sum("a"), sum("b"), message("recv", 0, 0), exchange({5, 0}, {2, 0})}}}),
              IsEmpty());
}

TEST(CallMismatches, ReportUnequalNamesAndShapesOfCollectives) {
  EXPECT_THAT(
      call_mismatches({{0, {sum("a", {4})}}, {1, {sum("a", {5})}}}),
      ElementsAre(HasSubstr("call 1 is all_reduce \"a\" of Float [4] on rank 0 and all_reduce \"a\" of "
                            "Float [5] on rank 1")));
  EXPECT_THAT(call_mismatches({{0, {sum("a"), sum("b")}}, {1, {sum("b"), sum("a")}}}),
              ElementsAre(HasSubstr("call 1")));
  EXPECT_THAT(call_mismatches({{0, {sum("a"), sum("b")}}, {1, {sum("a")}}}),
              ElementsAre(HasSubstr("rank 0 makes 2 and rank 1 makes 1")));
  EXPECT_THAT(call_mismatches({{0, {sum("a")}}, {1, {}}}), ElementsAre(HasSubstr("rank 1 makes 0")));
}

TEST(CallMismatches, AcceptDifferentDynamicSizes) {
  LoggedCall mine = sum("text", {9}), theirs = sum("text", {7});
  mine.dynamic_size = theirs.dynamic_size = true;
  EXPECT_THAT(call_mismatches({{0, {mine}}, {1, {theirs}}}), IsEmpty());
}

TEST(CallMismatches, ReportSendsWithoutAReceive) {
  EXPECT_THAT(call_mismatches({{0, {message("send", 1, 3)}}, {1, {message("recv", 0, 4)}}}).size(), 2U);
  EXPECT_THAT(call_mismatches({{0, {message("send", 1, 3, {4})}}, {1, {message("recv", 0, 3, {6})}}}),
              ElementsAre(HasSubstr("message 1")));
  EXPECT_THAT(call_mismatches({{0, {message("send", 1, 3)}}}), IsEmpty()) << "the other rank is not checked";
}

TEST(CallMismatches, ReportUnequalRowCountsOfAnAllToAll) {
  EXPECT_THAT(call_mismatches({{0, {exchange({1, 2}, {1, 5})}}, {1, {exchange({4, 0}, {2, 0})}}}),
              ElementsAre(HasSubstr("rows")));
}

TEST(CallMismatches, ReportDeadlocksBetweenGroups) {
  EXPECT_THAT(call_mismatches({{0, {sum("a", {4}, "tp"), sum("b", {4}, "dp")}},
                               {1, {sum("b", {4}, "dp"), sum("a", {4}, "tp")}}}),
              ElementsAre(HasSubstr("rank 0 in all_reduce \"a\"")));
}

TEST(StageDifferences, AreComparedByAxes) {
  LoggedCall elsewhere = sum("a");
  elsewhere.ranks = members({6, 7});
  EXPECT_THAT(differences(0, {sum("a")}, 6, {elsewhere}), IsEmpty());
  elsewhere.what = "b";
  EXPECT_THAT(differences(0, {sum("a")}, 6, {elsewhere}), ElementsAre(HasSubstr("collective 1 is")));
  EXPECT_THAT(differences(0, {sum("a")}, 6, {}), ElementsAre(HasSubstr("and none")));
}

TEST(StageDifferences, IgnoreTheInterleavingOfSendsAndReceives) {
  const LoggedCall send = message("send", 1, 0), receive = message("recv", 1, 0);
  EXPECT_THAT(differences(0, {send, receive}, 1, {receive, send}), IsEmpty());
  EXPECT_THAT(differences(0, {send, receive}, 1, {receive}), ElementsAre(HasSubstr("send 1 is")));
  EXPECT_THAT(differences(0, {send, receive}, 1, {receive, message("send", 1, 0, {6})}),
              ElementsAre(HasSubstr("send 1 is")));
}

}  // namespace
}  // namespace colonnade::comm
