// Help, reference page and completion scripts.
#include "colonnade/config/help.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/config/completion.h"
#include "colonnade/config/schema.h"
#include "support/vectors.h"

namespace colonnade::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Help, ShortHelpFitsTwoScreensAndFullHelpHasAllSettings) {
  const std::string text = short_help();
  EXPECT_THAT(
      text, AllOf(HasSubstr("--num-layers"), HasSubstr("--tensor-model-parallel-size"), HasSubstr("--config"),
                  Not(HasSubstr("--hysteresis")), Not(HasSubstr("--cache-mla-latents"))));
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 90);
  const std::string full = full_help();
  for (const Setting& s : schema()) {
    if (s.cls != Class::kImplemented) continue;
    EXPECT_NE(full.find("  " + s.flag), std::string::npos) << s.flag;
  }
  EXPECT_THAT(full, Not(HasSubstr("--cache-mla-latents")));
}

TEST(Help, LinesAreAtMost112Wide) {
  for (const std::string& text : {short_help(), full_help()}) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      EXPECT_LE(end - at, 112U) << text.substr(at, end - at);
      at = end + 1;
    }
  }
}

std::string settings_text(Use use, bool all) { return render({.sections = settings_help(use, all)}); }

TEST(Help, ShowsTheSettingsThatACommandReads) {
  EXPECT_THAT(settings_text(Use::kGenerate, false),
              AllOf(HasSubstr("--load"), HasSubstr("--tensor-model-parallel-size"), Not(HasSubstr("--lr")),
                    Not(HasSubstr("--data-path")), Not(HasSubstr("optimizer:"))));
  EXPECT_THAT(settings_text(Use::kEvaluateData, false),
              AllOf(HasSubstr("--data-path"), Not(HasSubstr("--lr"))));
  EXPECT_THAT(settings_text(Use::kGenerate, true), AllOf(HasSubstr("--ckpt-step"), Not(HasSubstr("--save"))));
  EXPECT_THAT(settings_text(Use::kTrain, true), HasSubstr("--clip-grad"));
}

TEST(Help, ShowsOneFlagInFull) {
  EXPECT_THAT(flag_help("hidden_dropout"), AllOf(HasSubstr("--hidden-dropout X\n"), HasSubstr("default: 0.1"),
                                                 HasSubstr("range: 0 to 1")));
  EXPECT_THAT(flag_help("--log-interval"),
              AllOf(HasSubstr("default: 1\n"), HasSubstr("Megatron's default: 100")));
  EXPECT_THAT(
      flag_help("--kitchen-recipe-number"),
      AllOf(HasSubstr("no FP8, FP4 and Transformer Engine recipes"), HasSubstr("not supported: remove it")));
  EXPECT_THAT(flag_help("--num-experts"), HasSubstr("read by: pretrain, evaluate, generate\n"));
  EXPECT_THAT(flag_help("--dataloader-type"), HasSubstr("read by: pretrain, data inspect\n"));
  EXPECT_THAT(flag_help("--lr"), HasSubstr("read by: pretrain\n"));
  EXPECT_THAT(flag_help("--seed"), HasSubstr("read by: pretrain, evaluate, generate, data inspect\n"));
  EXPECT_THAT(flag_help("--swiglu"), HasSubstr("short for --activation swiglu"));
  EXPECT_THROW(flag_help("--num-layer"), ConfigError);
  try {
    flag_help("--max-length", {{"--max-new-tokens", "N", ""}}, Use::kGenerate);
    ADD_FAILURE() << "known";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean --max-new-tokens?"));
  }
}

TEST(Help, HasFourRequestForms) {
  EXPECT_EQ(help_request({"--num-layers", "3"}), std::nullopt);
  EXPECT_EQ(help_request({"--num-layers", "3", "-h"}), HelpRequest{});
  EXPECT_EQ(help_request({"--help"}), HelpRequest{});
  EXPECT_EQ(help_request({"--help-all"}), HelpRequest{.all = true});
  EXPECT_EQ(help_request({"--help", "--lr"}), HelpRequest{.flag = "--lr"});
}

TEST(Help, ReferencePageIsUpToDate) {
  const std::string page = test::sources() + "/docs/reference/settings.md";
  if (std::getenv("COLONNADE_GOLDEN") != nullptr) {
    std::filesystem::create_directories(std::filesystem::path(page).parent_path());
    write_file_atomically(page, markdown());
  }
  EXPECT_EQ(read_file(page), markdown())
      << "to renew: colonnade help --markdown > docs/reference/settings.md";
}

/// Whether the shell runs the program with exit code 0. False if the shell is not installed: run
/// `tools/setup.sh test`.
bool succeeds(const std::string& shell, const std::string& program) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("completion_test_" + std::to_string(::getpid()) + "." + shell);
  write_file_atomically(path, program);
  const int status = std::system((shell + " " + path.string()).c_str());
  std::filesystem::remove(path);
  return status == 0;
}

const std::vector<VerbCompletion> kOffers = {
    {"pretrain", "", {}, Use::kTrain},
    {"launch", "", {{"--max-restarts", "N", "starts after the first; it's 0"}}},
    {"generate", "", {{"--prompt", "TEXT", "text"}}, Use::kGenerate},
    {"checkpoint", "inspect", {{"--json", "FILE", "file"}}},
    {"checkpoint", "verify", {}},
};

/// Whether completing the last of `words` offers `wanted`.
using Offers = bool (*)(const std::vector<std::string>& words, const std::string& wanted);

/// The words, each in single quotes.
std::string quoted(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += " '" + word + "'";
  return text;
}

bool bash_offers(const std::vector<std::string>& words, const std::string& wanted) {
  return succeeds("bash", completion("bash", kOffers) + "COMP_WORDS=(colonnade" + quoted(words) +
                              ")\nCOMP_CWORD=" + std::to_string(words.size()) +
                              "\n_colonnade\n[[ \" ${COMPREPLY[*]} \" == *\" " + wanted + " \"* ]]\n");
}

/// zsh's completion system needs a terminal: stubs replace the functions that the script calls.
bool zsh_offers(const std::vector<std::string>& words, const std::string& wanted) {
  const std::string stubs =
      "compdef() { :; }\n_files() { :; }\noffered=()\n"
      "compadd() { shift; for one in \"$@\"; do [[ $one == \"$words[CURRENT]\"* ]] && offered+=($one); done; "
      "}\n";
  return succeeds("zsh", stubs + completion("zsh", kOffers) + "words=(colonnade" + quoted(words) +
                             ")\nCURRENT=" + std::to_string(words.size() + 1) +
                             "\n_colonnade\n[[ \" $offered \" == *\" " + wanted + " \"* ]]\n");
}

bool fish_offers(const std::vector<std::string>& words, const std::string& wanted) {
  std::string line = "colonnade";
  for (const std::string& word : words) line += " " + word;
  return succeeds("fish", completion("fish", kOffers) + "complete -C '" + line +
                              "' | string split -f1 \\t | string match -q -- '" + wanted + "'\n");
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
  EXPECT_FALSE(offers({"pretrain", "--kitchen-recipe"}, "--kitchen-recipe-number"))
      << "unsupported flags are not offered";
  EXPECT_TRUE(offers({"launch", "--max"}, "--max-restarts"));
  EXPECT_FALSE(offers({"launch", "--num-la"}, "--num-layers")) << "settings belong to the ranks";
  EXPECT_TRUE(offers({"launch", "--max-restarts", "2", "--", "pre"}, "pretrain"));
  EXPECT_TRUE(offers({"launch", "--max-restarts", "2", "--", "pretrain", "--num-la"}, "--num-layers"));
  EXPECT_TRUE(offers({"generate", "--pro"}, "--prompt"));
  EXPECT_TRUE(offers({"generate", "--num-la"}, "--num-layers"));
  EXPECT_TRUE(offers({"generate", "--normalization", "RMS"}, "RMSNorm"));
  EXPECT_TRUE(offers({"pretrain", "--clip"}, "--clip-grad"));
  EXPECT_FALSE(offers({"generate", "--clip"}, "--clip-grad")) << "not read by generate";
  EXPECT_FALSE(offers({"pretrain", "--pro"}, "--prompt")) << "of another verb";
  EXPECT_TRUE(offers({"checkpoint", ""}, "verify"));
  EXPECT_TRUE(offers({"checkpoint", "inspect", "--js"}, "--json"));
  EXPECT_FALSE(offers({"checkpoint", "verify", "--js"}, "--json"));
}

INSTANTIATE_TEST_SUITE_P(Completion, EveryShell, ::testing::Values(bash_offers, zsh_offers, fish_offers),
                         shell_of);

TEST(Completion, OtherShellsAreRejected) { EXPECT_THROW(completion("tcsh", {}), ConfigError); }

}  // namespace
}  // namespace colonnade::config
