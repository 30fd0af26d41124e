// Words of every kind, read by a real shell.
#include "colonnade/base/shell.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>

namespace colonnade {
namespace {

/// What `sh` makes of the words, each behind a line of its own.
std::string read_by_a_shell(const std::string& line) {
  const std::string command = "printf '<%s>' " + line;
  FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  std::array<char, 256> part{};
  while (const std::size_t count = std::fread(part.data(), 1, part.size(), pipe))
    text.append(part.data(), count);
  ::pclose(pipe);
  return text;
}

TEST(Shell, PlainWordsStandAsTheyAre) {
  EXPECT_EQ(shell_line({"colonnade", "pretrain", "--load", "runs/a", "--split=969,30,1"}),
            "colonnade pretrain --load runs/a --split=969,30,1");
  EXPECT_EQ(shell_line({"--layout", "Et|(t|)*2L", "a'b", ""}), "--layout 'Et|(t|)*2L' 'a'\\''b' ''");
}

TEST(Shell, EveryWordArrivesAsItWas) {
  const std::vector<std::string> words = {"a b", "$HOME", "`x`",    "it's",    "\"q\"", "",    "~",
                                          "#x",  "*",     "a\\b",   "!x",      "{a,b}", "[a]", "a;b",
                                          "a&b", "<>",    "tab\tx", "line\nx", "é 中"};
  std::string expected;
  for (const std::string& word : words) expected += "<" + word + ">";
  EXPECT_EQ(read_by_a_shell(shell_line(words)), expected);
}

}  // namespace
}  // namespace colonnade
