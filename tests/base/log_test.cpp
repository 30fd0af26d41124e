// Lines on standard error: rank, level, what is left out.
#include "colonnade/base/log.h"

#include <gtest/gtest.h>

#include <functional>

#include "colonnade/base/error.h"

namespace colonnade {
namespace {

std::string printed(const std::function<void()>& body) {
  testing::internal::CaptureStderr();
  body();
  return testing::internal::GetCapturedStderr();
}

TEST(Log, LinesCarryTheirLevelAndTheRankWhereThereIsOne) {
  EXPECT_EQ(printed([] { log::info("step {}", 3); }), "step 3\n");
  EXPECT_EQ(printed([] { log::warning("the disk is {}", "full"); }), "warning: the disk is full\n");
  log::set_rank(2);
  EXPECT_EQ(printed([] { log::error("stop"); }), "[rank 2] error: stop\n");
  log::set_rank(-1);
}

TEST(Log, LowerLevelsAreLeftOut) {
  log::set_level(log::Level::kWarning);
  EXPECT_EQ(printed([] { log::info("one"), log::warning("two"); }), "warning: two\n");
  log::set_level(log::Level::kInfo);
}

TEST(Check, NamesMessageFileAndLineAndCostsNothingWhenItHolds) {
  int built = 0;
  const auto text = [&] { return ++built, "a value"; };
  COL_CHECK(true, "never built: {}", text());
  EXPECT_EQ(built, 0);
  try {
    fail("/anywhere/src/colonnade/plan/mesh.cpp", 7, "mesh: must fit; got 3");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "mesh: must fit; got 3 [colonnade/plan/mesh.cpp:7]");
  }
  EXPECT_THROW(COL_CHECK(1 > 2, "{}", text()), Error);
  EXPECT_EQ(built, 1);
}

}  // namespace
}  // namespace colonnade
