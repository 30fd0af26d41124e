// Tests of the layout of help texts.
#include "colonnade/config/help_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace colonnade::config {
namespace {

using ::testing::HasSubstr;

TEST(HelpPage, HasUsageAboutExamplesAndTables) {
  EXPECT_EQ(render({.usage = "colonnade data audit [FLAGS] run",
                    .about = "Reports the samples that a run has used.\nExit code 3 for changed data.",
                    .examples = {"colonnade data audit runs/books --samples 4000..4007"},
                    .sections = {{"arguments", {{"run", "", "folder of the run"}}},
                                 {"flags",
                                  {{"--samples", "TEXT", "show these samples"},
                                   {"--show", "N", "number of samples", {"3", "0 to 100000"}},
                                   {"--ids", "", "also print ids"}}}}}),
            "usage: colonnade data audit [FLAGS] run\n"
            "\n"
            "Reports the samples that a run has used.\n"
            "Exit code 3 for changed data.\n"
            "\n"
            "examples:\n"
            "  colonnade data audit runs/books --samples 4000..4007\n"
            "\n"
            "arguments:\n"
            "  run             folder of the run\n"
            "\n"
            "flags:\n"
            "  --samples TEXT  show these samples\n"
            "  --show N        number of samples [3; 0 to 100000]\n"
            "  --ids           also print ids\n");
}

TEST(HelpPage, OmitsEmptyParts) {
  EXPECT_EQ(render({.about = "All settings."}), "All settings.\n");
  EXPECT_EQ(render({.sections = {{"none", {}}, {"", {{"--a", "", "b"}}}}}), "  --a  b\n");
  EXPECT_EQ(render({}), "");
}

TEST(HelpPage, WrapsEveryPart) {
  std::string words;
  for (int i = 0; i < 60; ++i) words += (i > 0 ? " word" : "word") + std::to_string(i);
  const std::string text = render({.usage = words,
                                   .about = words,
                                   .examples = {words},
                                   .sections = {{"flags", {{"--flag", "N", words, {"3"}}}}}});
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 110U) << line;
  EXPECT_THAT(text, HasSubstr("usage: word0 "));
  EXPECT_THAT(text, HasSubstr("\n      word"));
  EXPECT_THAT(text, HasSubstr("\n  --flag N  word0 "));
  EXPECT_THAT(text, HasSubstr("\n            word"));
  EXPECT_THAT(text, HasSubstr("word59 [3]\n"));
}

TEST(HelpPage, ALongFlagStandsAloneOnItsLine) {
  const std::string flag = "--" + std::string(34, 'x');
  EXPECT_EQ(render({.sections = {{"", {{flag, "", "long"}, {"--y", "N", "short"}}}}}),
            "  " + flag + "\n         long\n  --y N  short\n");
  const std::string fits = flag.substr(0, 35);
  EXPECT_EQ(render({.sections = {{"", {{fits, "", "one space"}}}}}), "  " + fits + " one space\n");
}

}  // namespace
}  // namespace colonnade::config
