// Launch prefix of a program, from the arguments of the process and of its parent.
#include "colonnade/launch/command_line.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace colonnade::launch {
namespace {

const Words kRank = {"/opt/colonnade", "pretrain", "gpt", "--save", "a b"};

TEST(CommandLine, RankOfTheLauncherHasTheLaunchersCommand) {
  const CommandLine line = command_line(
      kRank, {"bin/colonnade", "launch", "--nproc-per-node", "4", "--", "pretrain", "gpt", "--save", "a b"});
  EXPECT_EQ(line.start, (Words{"bin/colonnade", "launch", "--nproc-per-node", "4", "--"}));
  EXPECT_EQ(line.program, "bin/colonnade");
  EXPECT_EQ(line.verb, "pretrain");
  EXPECT_TRUE(line.launched);
}

TEST(CommandLine, TorchrunPrefixEndsWithTheProgram) {
  const CommandLine line =
      command_line(kRank, {"python3", "/usr/bin/torchrun", "--nproc-per-node=2", "--no-python", "colonnade",
                           "pretrain", "gpt", "--save", "a b"});
  EXPECT_EQ(line.start.back(), "colonnade");
  EXPECT_EQ(line.start.size(), 5U);
  EXPECT_EQ(line.program, "colonnade");
  EXPECT_TRUE(line.launched);
}

TEST(CommandLine, OtherParentsAreIgnored) {
  for (const Words& parent :
       {Words{"bash"}, Words{"bash", "-c", "colonnade pretrain gpt --save 'a b'"}, Words{},
        Words{"slurmstepd: [12.0]"}, Words{"pretrain", "gpt", "--save", "b"}}) {
    const CommandLine line = command_line(kRank, parent);
    EXPECT_EQ(line.start, (Words{"/opt/colonnade"}));
    EXPECT_EQ(line.program, "/opt/colonnade");
    EXPECT_FALSE(line.launched);
  }
  EXPECT_EQ(command_line({"colonnade"}, {"bash"}).verb, "");
}

TEST(CommandLine, LauncherHasItsOwnPrefix) {
  const Words own = {"colonnade", "launch", "--max-restarts", "1", "--", "pretrain", "gpt", "--save", "a b"};
  const CommandLine line = command_line_of_launcher(own, kRank);
  EXPECT_EQ(line.start, (Words{"colonnade", "launch", "--max-restarts", "1", "--"}));
  EXPECT_EQ(line.verb, "pretrain");
  EXPECT_EQ(command_line_of_launcher({"launch_test"}, kRank).start, Words{})
      << "started with other arguments";
}

TEST(CommandLine, WordsOfProcessAreItsArguments) {
  const Words words = words_of_process(::getpid());
  ASSERT_FALSE(words.empty());
  EXPECT_NE(words[0].find("launch_test"), std::string::npos);
  EXPECT_EQ(words_of_process(-1), Words{});
}

}  // namespace
}  // namespace colonnade::launch
