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

/// Exit code of a shell that reads the script from a file and runs `then`; 127 when it is not installed,
/// which `tools/setup.sh test` mends.
int read_by_shell(const std::string& shell, const std::string& script, const std::string& then) {
  const auto path = std::filesystem::temp_directory_path() / ("colonnade_completion." + shell);
  const auto program = std::filesystem::temp_directory_path() / ("colonnade_completion_test." + shell);
  write_file_atomically(path, script);
  write_file_atomically(program, then);
  const int status = std::system((shell + " " + program.string()).c_str());
  std::filesystem::remove(path);
  std::filesystem::remove(program);
  return WEXITSTATUS(status);
}

const std::vector<Offer> kOffers = {
    {"pretrain", "", {}, true},
    {"launch", "", {{"--max-restarts", 1, "starts after the first; it's 0"}}},
    {"generate", "", {{"--prompt", 1, "text"}}, true},
    {"checkpoint", "inspect", {{"--json", 1, "file"}}},
    {"checkpoint", "verify", {}},
};

/// Whether completion of the last of `words` offers `wanted`.
using Offers = bool (*)(const std::vector<std::string>& words, const std::string& wanted);

bool bash_offers(const std::vector<std::string>& words, const std::string& wanted) {
  std::string quoted;
  for (const std::string& word : words) quoted += " '" + word + "'";
  const std::string then = "source ${TMPDIR:-/tmp}/colonnade_completion.bash\nCOMP_WORDS=(colonnade" +
                           quoted + ")\nCOMP_CWORD=" + std::to_string(words.size()) +
                           "\n_colonnade\n[[ \" ${COMPREPLY[*]} \" == *\" " + wanted + " \"* ]]\n";
  return read_by_shell("bash", completion("bash", kOffers), then) == 0;
}

bool zsh_offers(const std::vector<std::string>& words, const std::string& wanted) {
  std::string quoted;
  for (const std::string& word : words) quoted += " '" + word + "'";
  const std::string then =
      "compdef() { :; }\n_files() { :; }\noffered=()\n"
      "compadd() { shift; for one in \"$@\"; do [[ $one == \"$words[CURRENT]\"* ]] && offered+=($one); done; "
      "return 0 }\n"
      "source ${TMPDIR:-/tmp}/colonnade_completion.zsh\nwords=(colonnade" +
      quoted + ")\nCURRENT=" + std::to_string(words.size() + 1) + "\n_colonnade\n[[ \" $offered \" == *\" " +
      wanted + " \"* ]]\n";
  return read_by_shell("zsh", completion("zsh", kOffers), then) == 0;
}

bool fish_offers(const std::vector<std::string>& words, const std::string& wanted) {
  std::string line = "colonnade";
  for (const std::string& word : words) line += " " + word;
  const std::string then =
      "set -q TMPDIR; or set TMPDIR /tmp\nsource $TMPDIR/colonnade_completion.fish\n"
      "complete -C '" +
      line + "' | string split -f1 \\t | string match -q -- '" + wanted + "'\n";
  return read_by_shell("fish", completion("fish", kOffers), then) == 0;
}

std::string shell_of(const ::testing::TestParamInfo<Offers>& info) {
  return info.param == bash_offers ? "Bash" : info.param == zsh_offers ? "Zsh" : "Fish";
}

class EveryShell : public ::testing::TestWithParam<Offers> {};

TEST_P(EveryShell, OffersVerbsSubVerbsFlagsAndChoices) {
  const Offers offers = GetParam();
  EXPECT_TRUE(offers({"pre"}, "pretrain"));
  EXPECT_TRUE(offers({"pretrain", "--num-la"}, "--num-layers"));
  EXPECT_TRUE(offers({"pretrain", "gpt", "--no-seq"}, "--no-sequence-parallel"));
  EXPECT_TRUE(offers({"pretrain", "--normalization", "RMS"}, "RMSNorm"));
  EXPECT_TRUE(offers({"pretrain", "--attention-backend", ""}, "fused"));
  EXPECT_FALSE(offers({"pretrain", "--num-exp"}, "--num-experts")) << "refused flags are not offered";
  EXPECT_TRUE(offers({"launch", "--max"}, "--max-restarts"));
  EXPECT_FALSE(offers({"launch", "--num-la"}, "--num-layers")) << "settings belong to the ranks";
  EXPECT_TRUE(offers({"launch", "--max-restarts", "2", "--", "pre"}, "pretrain"));
  EXPECT_TRUE(offers({"launch", "--max-restarts", "2", "--", "pretrain", "--num-la"}, "--num-layers"));
  EXPECT_TRUE(offers({"generate", "--pro"}, "--prompt"));
  EXPECT_TRUE(offers({"generate", "--num-la"}, "--num-layers"));
  EXPECT_FALSE(offers({"pretrain", "--pro"}, "--prompt")) << "of another verb";
  EXPECT_TRUE(offers({"checkpoint", ""}, "verify"));
  EXPECT_TRUE(offers({"checkpoint", "inspect", "--js"}, "--json"));
  EXPECT_FALSE(offers({"checkpoint", "verify", "--js"}, "--json"));
}

INSTANTIATE_TEST_SUITE_P(Completion, EveryShell, ::testing::Values(bash_offers, zsh_offers, fish_offers),
                         shell_of);

TEST(Completion, AnotherShellIsRefused) { EXPECT_THROW(completion("tcsh", {}), ConfigError); }

}  // namespace
}  // namespace colonnade::config
