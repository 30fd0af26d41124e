// Quoted words, parsed by a real shell.
#include "colonnade/base/shell.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>

namespace colonnade {
namespace {

/// The words as parsed by `sh`, each as "<word>".
std::string parsed_by_shell(const std::string& line) {
  const std::string command = "printf '<%s>' " + line;
  FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  std::array<char, 256> part{};
  while (const std::size_t count = std::fread(part.data(), 1, part.size(), pipe))
    text.append(part.data(), count);
  ::pclose(pipe);
  return text;
}

TEST(Shell, PlainWordsAreNotQuoted) {
  EXPECT_EQ(shell_join({"colonnade", "pretrain", "--load", "runs/a", "--split=969,30,1"}),
            "colonnade pretrain --load runs/a --split=969,30,1");
  EXPECT_EQ(shell_join({"--layout", "Et|(t|)*2L", "a'b", ""}), "--layout 'Et|(t|)*2L' 'a'\\''b' ''");
}

TEST(Shell, QuotedWordsRoundTrip) {
  const std::vector<std::string> words = {"a b", "$HOME", "`x`",    "it's",    "\"q\"", "",    "~",
                                          "#x",  "*",     "a\\b",   "!x",      "{a,b}", "[a]", "a;b",
                                          "a&b", "<>",    "tab\tx", "line\nx", "é 中"};
  std::string expected;
  for (const std::string& word : words) expected += "<" + word + ">";
  EXPECT_EQ(parsed_by_shell(shell_join(words)), expected);
}

}  // namespace
}  // namespace colonnade
