// sessions.json: round trips, sessions that a resumed run keeps, damage.
#include "colonnade/record/sessions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"

namespace colonnade::record {
namespace {

namespace fs = std::filesystem;

class Sessions : public testing::Test {
 protected:
  void SetUp() override { fs::remove(path_); }
  void TearDown() override { fs::remove(path_); }
  const fs::path path_ = fs::path(testing::TempDir()) / "colonnade_sessions_test.json";
};

RunSummary session(std::int64_t first, std::int64_t last) {
  return {.title = "gpt",
          .facts = {{"layout", "tensor 2"}, {"batch", "8"}},
          .ranks = {{.rank = 3,
                     .coordinates = "tp 1",
                     .blocks = "layer 1",
                     .parameters = 12,
                     .planned = {{1, 2, 3, 4, 5}},
                     .measured = {{6, 7, 8, 9, 10}}}},
          .pipeline_svg = "<svg></svg>",
          .times = {{0.1, 0.2, 0.3, 0.4, 0.5, 0.6}},
          .wall_seconds = 2.5,
          .first_step = first,
          .last_step = last,
          .began = "2026-11-21 13:04"};
}

TEST_F(Sessions, RoundTrip) {
  write_sessions(path_, {session(1, 5), session(6, 9)});
  const auto read = read_sessions(path_);
  ASSERT_EQ(read.size(), 2U);
  const RunSummary expected = session(6, 9);
  EXPECT_EQ(read[1].first_step, 6);
  EXPECT_EQ(read[1].last_step, 9);
  EXPECT_EQ(read[1].title, expected.title);
  EXPECT_EQ(read[1].facts, expected.facts);
  EXPECT_EQ(read[1].began, expected.began);
  EXPECT_EQ(read[1].pipeline_svg, expected.pipeline_svg);
  EXPECT_EQ(read[1].wall_seconds, expected.wall_seconds);
  EXPECT_EQ(read[1].times.seconds, expected.times.seconds);
  ASSERT_EQ(read[1].ranks.size(), 1U);
  EXPECT_EQ(read[1].ranks[0].rank, 3);
  EXPECT_EQ(read[1].ranks[0].coordinates, "tp 1");
  EXPECT_EQ(read[1].ranks[0].blocks, "layer 1");
  EXPECT_EQ(read[1].ranks[0].parameters, 12);
  EXPECT_EQ(read[1].ranks[0].planned, expected.ranks[0].planned);
  EXPECT_EQ(read[1].ranks[0].measured, expected.ranks[0].measured);
}

TEST_F(Sessions, NewFolderHasNone) { EXPECT_TRUE(read_sessions(path_).empty()); }

TEST_F(Sessions, DamageIsReported) {
  std::ofstream(path_) << "[{\"title\": \"gpt\"}]";
  try {
    (void)read_sessions(path_);
    FAIL() << "the damage was not detected";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("must be a list of sessions"));
  }
}

TEST(SessionsUntil, ResumedRunKeepsSessionsBeforeIt) {
  const auto kept = sessions_until({session(1, 5), session(6, 9), session(10, 12)}, 7);
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_EQ(kept[1].first_step, 6);
  EXPECT_TRUE(sessions_until({session(1, 5)}, 0).empty()) << "a new run";
}

}  // namespace
}  // namespace colonnade::record
