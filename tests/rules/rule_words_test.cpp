// Following the fix of a rule's message literally fixes the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "colonnade/base/error.h"
#include "colonnade/config/parse.h"
#include "rules/rule_examples.h"

namespace colonnade::rules {
namespace {

using test::all_examples;
using test::ids_of;
using test::problems_of;
using test::words;
using ::testing::Contains;
using ::testing::Not;

using Edits = std::vector<Edit>;

std::vector<std::string> split(std::string text, const std::string& separator) {
  std::vector<std::string> parts;
  for (std::size_t end; (end = text.find(separator)) != std::string::npos;
       text.erase(0, end + separator.size()))
    parts.push_back(text.substr(0, end));
  parts.push_back(text);
  return parts;
}

/// Edit equivalent to removing a flag.
Edit removed(const config::Setting& s) { return {s.key, s.default_text()}; }

/// Edit of "--flag", "--flag word" or "--flag "words""; nullopt if the text names no value that can be set.
std::optional<Edit> edit_of(const std::string& text) {
  const std::size_t space = std::min(text.find(' '), text.size());
  const auto match = config::find(text.substr(0, space));
  if (!match || match->setting->set == nullptr) return std::nullopt;
  const config::Setting& s = *match->setting;
  if (space == text.size())
    return s.kind == config::Kind::kSwitch ? std::optional(Edit{s.key, match->off ? "false" : "true"})
                                           : std::nullopt;
  std::string value = split(text.substr(space + 1), " or ").front();
  const bool quoted = value.size() > 1 && value.front() == '"' && value.back() == '"';
  if (quoted) value = value.substr(1, value.size() - 2);
  if (!quoted && s.kind != config::Kind::kList && value.find(' ') != std::string::npos) return std::nullopt;
  return Edit{s.key, value};
}

/// Flags at the begin of a message: "--a, --b must ..." -> {"--a", "--b"}.
std::vector<std::string> leading_flags(const std::string& text) {
  std::vector<std::string> flags;
  for (std::size_t at = 0; text.compare(at, 2, "--") == 0;) {
    const std::size_t end = std::min(text.find_first_of(", ", at), text.size());
    flags.push_back(text.substr(at, end - at));
    if (text.compare(end, 2, ", ") != 0) break;
    at = end + 2;
  }
  return flags;
}

/// Edits of one instruction: "set --flag value", "add --flag", "remove --flag", "remove the flag", "start 8
/// ranks". `flags` are those that the message is about.
std::optional<Edits> instruction(const std::string& text, const std::vector<std::string>& flags) {
  for (const char* verb : {"set ", "add "}) {
    if (!text.starts_with(verb)) continue;
    const auto edit = edit_of(text.substr(4));
    return edit ? std::optional(Edits{*edit}) : std::nullopt;
  }
  if (text.starts_with("start ")) return Edits{{"world_size", text.substr(6, text.find(' ', 6) - 6)}};
  Edits edits;
  const bool removes_all = text == "remove the flag" || text == "remove the flags";
  if (!removes_all && !text.starts_with("remove --")) return std::nullopt;
  for (const std::string& flag : removes_all ? flags : std::vector{text.substr(7)}) {
    const auto match = config::find(flag);
    if (!match || match->setting->set == nullptr) return std::nullopt;
    edits.push_back(removed(*match->setting));
  }
  return edits;
}

/// Alternative fixes that a problem's text names, each as edits. Fixes in free text are skipped.
std::vector<Edits> fixes_of(const Problem& problem) {
  const std::vector<std::string> flags = leading_flags(problem.text);
  const std::string last = split(problem.text, "; ").back();
  std::vector<Edits> fixes;
  for (const std::string& alternative : split(last, ", ")) {
    const std::string fix = alternative.starts_with("or ") ? alternative.substr(3) : alternative;
    std::optional<Edits> edits = Edits{};
    std::string verb;
    for (std::string part : split(fix, " and ")) {
      if (part.starts_with("--")) part = verb + part;  // second flag of "remove --a and --b"
      verb = part.substr(0, part.find("--"));
      const auto one = instruction(part, flags);
      if (!one) edits.reset();
      if (!edits) break;
      edits->insert(edits->end(), one->begin(), one->end());
    }
    if (edits) fixes.push_back(*edits);
  }
  return fixes;
}

/// Run after the edits, as if given on its command line.
config::Run with_edits(config::Run run, const Edits& edits) {
  for (const Edit& edit : edits) {
    apply(run, edit);
    if (edit.key == "world_size") continue;
    const bool unset = edit.value == config::setting(edit.key).default_text();
    if (unset)
      run.given.erase(edit.key);
    else
      run.given[edit.key] = "the command line";
  }
  return run;
}

TEST(RuleWords, EveryNamedFixFixesItsRule) {
  std::size_t tried = 0;
  for (const RuleExample& e : all_examples()) {
    const config::Run run = e.broken();
    for (const Problem& problem : problems_of(run)) {
      if (problem.id != e.id) continue;
      for (const Edits& fix : fixes_of(problem)) {
        EXPECT_THAT(ids_of(with_edits(run, fix)), Not(Contains(e.id))) << problem.text;
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 150U);
}

TEST(RuleWords, AllNamedFixesTogetherYieldAValidRun) {
  for (const RuleExample& e : all_examples()) {
    config::Run run = e.broken();
    for (int round = 0; round < 2; ++round) {
      for (const Problem& problem : problems_of(run)) {
        const auto fixes = fixes_of(problem);
        run = with_edits(run, fixes.empty() ? problem.edits : fixes.front());
      }
    }
    EXPECT_EQ(report(problems_of(run)), "") << words(e);
  }
}

}  // namespace
}  // namespace colonnade::rules
