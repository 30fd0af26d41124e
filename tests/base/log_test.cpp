// Log lines on standard error: rank, level, filtered levels.
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

TEST(Log, LinesArePrefixedWithRankAndLevel) {
  EXPECT_EQ(printed([] { log::info("step {}", 3); }), "step 3\n");
  EXPECT_EQ(printed([] { log::warning("the disk is {}", "full"); }), "warning: the disk is full\n");
  log::set_rank(2);
  EXPECT_EQ(printed([] { log::error("stop"); }), "[rank 2] error: stop\n");
  log::set_rank(-1);
}

TEST(Log, LowerLevelsAreFiltered) {
  log::set_level(log::Level::kWarning);
  EXPECT_EQ(printed([] { log::info("one"), log::warning("two"); }), "warning: two\n");
  log::set_level(log::Level::kInfo);
}

// Python prints a record if its level is at least the configured one: info 20, warning 30, error 40.
TEST(Log, PythonLevelsFilterAsInPython) {
  const auto printed_at = [](std::int64_t number) {
    log::set_level(log::level_from_python(number));
    const std::string text = printed([] { log::info("i"), log::warning("w"), log::error("e"); });
    log::set_level(log::Level::kInfo);
    return text;
  };
  const std::string errors = "error: e\n", warnings = "warning: w\n" + errors;
  for (const int all : {0, 10, 20}) EXPECT_EQ(printed_at(all), "i\n" + warnings) << all;
  for (const int no_info : {21, 30}) EXPECT_EQ(printed_at(no_info), warnings) << no_info;
  for (const int no_warnings : {31, 40}) EXPECT_EQ(printed_at(no_warnings), errors) << no_warnings;
  EXPECT_EQ(printed_at(50), errors) << "errors are always printed";
}

TEST(Check, ReportsMessageFileAndLineAndFormatsOnlyOnFailure) {
  int built = 0;
  const auto text = [&] { return ++built, "a value"; };
  COL_CHECK(true, "never built: {}", text());
  EXPECT_EQ(built, 0);
  try {
    fail("/anywhere/src/colonnade/layout/mesh.cpp", 7, "mesh must fit; got 3");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "mesh must fit; got 3 [colonnade/layout/mesh.cpp:7]");
  }
  EXPECT_THROW(COL_CHECK(1 > 2, "{}", text()), Error);
  EXPECT_EQ(built, 1);
}

}  // namespace
}  // namespace colonnade
