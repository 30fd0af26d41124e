// Help, reference page and completion scripts.
#include "colonnade/config/help.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/config/completion.h"
#include "colonnade/config/schema.h"

namespace colonnade::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Help, TheShortOneFitsAScreenOrTwoAndTheFullOneHasEverySetting) {
  const std::string text = short_help();
  EXPECT_THAT(
      text, AllOf(HasSubstr("--num-layers"), HasSubstr("--tensor-model-parallel-size"), HasSubstr("--config"),
                  Not(HasSubstr("--hysteresis")), Not(HasSubstr("--num-experts"))));
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 90);
  const std::string full = full_help();
  for (const Setting& s : schema()) {
    if (s.cls != Class::kImplemented) continue;
    EXPECT_NE(full.find("  " + s.flag), std::string::npos) << s.flag;
  }
  EXPECT_THAT(full, Not(HasSubstr("--num-experts")));
}

TEST(Help, NoLineIsTooWide) {
  for (const std::string& text : {short_help(), full_help()}) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      EXPECT_LE(end - at, 112U) << text.substr(at, end - at);
      at = end + 1;
    }
  }
}

TEST(Help, OneFlagInFull) {
  EXPECT_THAT(flag_help("hidden_dropout"), AllOf(HasSubstr("--hidden-dropout X\n"), HasSubstr("default: 0.1"),
                                                 HasSubstr("range: 0 to 1")));
  EXPECT_THAT(flag_help("--log-interval"),
              AllOf(HasSubstr("default: 1\n"), HasSubstr("Megatron's default: 100")));
  EXPECT_THAT(flag_help("--num-experts"),
              AllOf(HasSubstr("no mixture of experts"), HasSubstr("refused: remove it")));
  EXPECT_THAT(flag_help("--swiglu"), HasSubstr("short for --activation swiglu"));
  EXPECT_THROW(flag_help("--num-layer"), ConfigError);
}

TEST(Help, IsAskedForInFourWays) {
  EXPECT_EQ(help_request({"--num-layers", "3"}), std::nullopt);
  EXPECT_EQ(help_request({"--num-layers", "3", "-h"}), short_help());
  EXPECT_EQ(help_request({"--help"}), short_help());
  EXPECT_EQ(help_request({"--help-all"}), full_help());
  EXPECT_EQ(help_request({"--help", "--lr"}), flag_help("--lr"));
}

TEST(Help, TheReferencePageIsUpToDate) {
  const std::string page = std::string(COLONNADE_VECTORS) + "/../../docs/reference/settings.md";
  if (std::getenv("COLONNADE_GOLDEN") != nullptr) {
    std::filesystem::create_directories(std::filesystem::path(page).parent_path());
    write_file_atomically(page, markdown());
  }
  EXPECT_EQ(read_file(page), markdown())
      << "to renew: colonnade help --markdown > docs/reference/settings.md";
}

/// Exit status of a shell that reads the script from a file; -1 when the shell is not installed.
int read_by_shell(const std::string& shell, const std::string& script, const std::string& then) {
  if (std::system(("command -v " + shell + " > /dev/null 2>&1").c_str()) != 0) return -1;
  const auto path = std::filesystem::temp_directory_path() / ("colonnade_completion." + shell);
  write_file_atomically(path, script);
  const int status = std::system((shell + " -c 'source " + path.string() + "; " + then + "'").c_str());
  std::filesystem::remove(path);
  return status;
}

TEST(Completion, BashOffersVerbsFlagsAndChoices) {
  const std::string script = completion("bash", {"pretrain", "launch"});
  const auto offers = [&](const std::string& words, int at, const std::string& wanted) {
    return read_by_shell("bash", script,
                         "COMP_WORDS=(colonnade " + words + "); COMP_CWORD=" + std::to_string(at) +
                             "; _colonnade; [[ \" ${COMPREPLY[*]} \" == *\" " + wanted + " \"* ]]");
  };
  EXPECT_LE(offers("pre", 1, "pretrain"), 0);
  EXPECT_LE(offers("pretrain --num-la", 2, "--num-layers"), 0);
  EXPECT_LE(offers("pretrain --normalization RMS", 3, "RMSNorm"), 0);
  EXPECT_LE(offers("pretrain --no-seq", 2, "--no-sequence-parallel"), 0);
  EXPECT_NE(offers("pretrain --num-exp", 2, "--num-experts"), 0) << "refused flags are not offered";
}

TEST(Completion, ZshAndFishListVerbsFlagsAndChoices) {
  for (const std::string shell : {"zsh", "fish"}) {
    const std::string script = completion(shell, {"pretrain", "launch"});
    EXPECT_THAT(script,
                AllOf(HasSubstr("pretrain launch"), HasSubstr("num-layers"), HasSubstr("LayerNorm RMSNorm")))
        << shell;
    EXPECT_THAT(script, Not(HasSubstr("num-experts"))) << shell;
    EXPECT_LE(read_by_shell(shell, shell == "zsh" ? "compdef() { :; }\n" + script : script, "true"), 0)
        << shell;
  }
}

TEST(Completion, AnotherShellIsRefused) { EXPECT_THROW(completion("tcsh", {}), ConfigError); }

}  // namespace
}  // namespace colonnade::config
