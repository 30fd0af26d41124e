// A person who does what a broken rule says, word by word, has mended it.
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

std::vector<std::string> split(std::string text, const std::string& at) {
  std::vector<std::string> parts;
  for (std::size_t end; (end = text.find(at)) != std::string::npos; text.erase(0, end + at.size()))
    parts.push_back(text.substr(0, end));
  parts.push_back(text);
  return parts;
}

/// What leaving a flag out means.
Edit left_out(const config::Setting& s) { return {s.key, s.default_text()}; }

/// "--flag", "--flag word" or "--flag "words"" as an edit; none where it names no value that can be set.
std::optional<Edit> given(const std::string& text) {
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

/// One thing to do: "set --flag value", "add --flag", "leave out --flag", "leave it out", "start 8 ranks".
std::optional<Edits> step(const std::string& text, const std::string& thing) {
  for (const char* verb : {"set ", "add "}) {
    if (!text.starts_with(verb)) continue;
    const auto edit = given(text.substr(4));
    return edit ? std::optional(Edits{*edit}) : std::nullopt;
  }
  if (text.starts_with("start ")) return Edits{{"world_size", text.substr(6, text.find(' ', 6) - 6)}};
  Edits edits;
  const bool thing_itself = text == "leave it out" || text == "leave them out";
  if (!thing_itself && !text.starts_with("leave out --")) return std::nullopt;
  for (const std::string& flag : split(thing_itself ? thing : text.substr(10), ", ")) {
    const auto match = config::find(flag);
    if (!match || match->setting->set == nullptr) return std::nullopt;
    edits.push_back(left_out(*match->setting));
  }
  return edits;
}

/// The flags that a text begins with, separated by commas.
std::string leading_flags(const std::string& text) {
  std::string flags;
  for (const std::string& word : split(text, " ")) {
    if (!word.starts_with("--")) break;
    flags += (flags.empty() ? "" : ", ") + word.substr(0, word.find(','));
  }
  return flags;
}

/// The ways out that the text of a problem names, each as edits; those in freer words are not among them.
std::vector<Edits> ways_out(const Problem& problem) {
  const std::string thing = leading_flags(problem.text);
  const std::string last = split(problem.text, "; ").back();
  std::vector<Edits> ways;
  for (const std::string& by_comma : split(last, ", ")) {
    const std::string way = by_comma.starts_with("or ") ? by_comma.substr(3) : by_comma;
    std::optional<Edits> edits = Edits{};
    std::string verb;
    for (std::string part : split(way, " and ")) {
      if (part.starts_with("--")) part = verb + part;  // of "leave out --a and --b"
      verb = part.substr(0, part.find("--"));
      const auto one = step(part, thing);
      if (!one) edits.reset();
      if (!edits) break;
      edits->insert(edits->end(), one->begin(), one->end());
    }
    if (edits) ways.push_back(*edits);
  }
  return ways;
}

/// The run after the edits, as if they stood on its command line.
config::Run followed(config::Run run, const Edits& edits) {
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

TEST(RuleWords, EveryWayOutThatIsNamedMendsItsRule) {
  std::size_t tried = 0;
  for (const RuleExample& e : all_examples()) {
    const config::Run run = e.broken();
    for (const Problem& problem : problems_of(run)) {
      if (problem.id != e.id) continue;
      for (const Edits& way : ways_out(problem)) {
        EXPECT_THAT(ids_of(followed(run, way)), Not(Contains(e.id))) << problem.text;
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 150U);
}

TEST(RuleWords, AllThatAreNamedTogetherEndInAGoodRun) {
  for (const RuleExample& e : all_examples()) {
    config::Run run = e.broken();
    for (int round = 0; round < 2; ++round) {
      for (const Problem& problem : problems_of(run)) {
        const auto ways = ways_out(problem);
        run = followed(run, ways.empty() ? problem.edits : ways.front());
      }
    }
    EXPECT_EQ(report(problems_of(run)), "") << words(e);
  }
}

}  // namespace
}  // namespace colonnade::rules
