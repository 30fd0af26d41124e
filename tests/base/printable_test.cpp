// Escaping for terminals: no control sequence survives and no text is lost.
#include "colonnade/base/printable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"

namespace colonnade {
namespace {

using namespace std::literals;

TEST(Printable, EscapesControlCharactersAndInvalidUtf8) {
  EXPECT_EQ(printable("a\0b"sv), "a\\x00b");
  EXPECT_EQ(printable("\x1b[31mred\r\x7f\b"), "\\x1b[31mred\\x0d\\x7f\\x08");
  EXPECT_EQ(printable("\u009b31m \u202e \u2066 \u2028"), "\\x9b31m \\u202e \\u2066 \\u2028");
  EXPECT_EQ(printable("\x9b"
                      "31m \xff \xc3"),
            "\\x9b31m \\xff \\xc3");
  EXPECT_EQ(printable("\xc0\x80 \xed\xa0\x80"), "\\xc0\\x80 \\xed\\xa0\\x80") << "invalid UTF-8";
}

TEST(Printable, LeavesPlainTextUnchanged) {
  for (const auto* text :
       {"", "plain, 'quoted' \\n", "two\nlines\tand a tab", "caf\u00e9 \u4e2d\u6587 \U0001f642"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, ErrorAndLogMessagesAreNotTruncated) {
  const std::string name = "weight\0\x1b[2J.bias"s;
  EXPECT_STREQ(DataError(fmt::format("'{}' must be a tensor; got none", name)).what(),
               "'weight\\x00\\x1b[2J.bias' must be a tensor; got none");
  testing::internal::CaptureStderr();
  log::warning("'{}' is not read", name);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "warning: 'weight\\x00\\x1b[2J.bias' is not read\n");
}

}  // namespace
}  // namespace colonnade
