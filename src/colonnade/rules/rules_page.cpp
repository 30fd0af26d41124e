// Examples of the rule table, and the page that shows the message of each.
#include "colonnade/rules/rules_page.h"

#include <algorithm>
#include <sstream>

#include "colonnade/base/error.h"
#include "colonnade/config/derive.h"
#include "colonnade/config/parse.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

config::Run valid_run(const RuleGroup& group) {
  config::Run run;
  for (const char* settings : {kValidRun, group.valid_settings})
    for (const Edit& edit : read_edits(settings)) apply(run, edit);
  return run;
}

RuleExample example_of(const RuleGroup& group, const Rule& rule) {
  return {rule.id, valid_run(group), read_edits(rule.example)};
}

/// Problem that the rule reports for its example.
Problem problem_of(const RuleExample& example) {
  config::Run run = example.broken();
  config::derive(run);
  for (Problem& problem : check(run))
    if (problem.id == example.id) return std::move(problem);
  throw Error(fmt::format("rules: every example must break its rule; got {}; fix the example", example.id));
}

/// Flags named in `text` and flags of `keys`, without duplicates.
std::vector<std::string> flags_in(const std::string& text, const std::vector<std::string>& keys) {
  std::vector<std::string> all;
  const auto add = [&](const std::string& flag) {
    if (std::ranges::find(all, flag) == all.end()) all.push_back(flag);
  };
  for (std::size_t at = 0; (at = text.find("--", at)) != std::string::npos;) {
    const std::size_t end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-", at);
    if (const auto match = config::find(text.substr(at, end - at))) add(match->setting->flag);
    at = std::min(end, text.size());
  }
  for (const std::string& key : keys)
    key == "world_size" ? add("number of ranks") : add(config::setting(key).flag);
  return all;
}

std::string section(const RuleGroup& group, const Rule& rule) {
  const Problem problem = problem_of(example_of(group, rule));
  std::vector<std::string> keys;
  std::istringstream inputs(rule.inputs);
  for (std::string key; inputs >> key;) keys.push_back(key);
  for (const Edit& edit : problem.edits) keys.push_back(edit.key);
  const std::string why = *rule.why == '\0' ? "" : fmt::format("{}\n", rule.why);
  return fmt::format("\n### {}\n\n{}{}: `{}`.\n\n```\n{}\n```\n", rule.id, why,
                     rule.training ? "Training only" : "Settings",
                     fmt::join(flags_in(problem.text, keys), "`, `"), problem.line());
}

}  // namespace

config::Run RuleExample::broken() const {
  config::Run run = valid;
  for (const Edit& edit : edits) {
    apply(run, edit);
    if (edit.key != "world_size") run.given[edit.key] = "the command line";
  }
  return run;
}

std::vector<RuleExample> rule_examples() {
  std::vector<RuleExample> examples;
  for (const RuleGroup& group : rule_groups())
    for (const Rule& rule : group.rules) examples.push_back(example_of(group, rule));
  return examples;
}

void apply(config::Run& run, const Edit& edit) {
  if (edit.key == "world_size")
    run.parallel.world_size = std::stoi(edit.value);
  else
    config::set(run, edit.key, edit.value);
}

std::vector<Edit> read_edits(std::string_view text) {
  std::vector<Edit> edits;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find("; "), text.size());
    const std::string_view one = text.substr(0, end);
    const std::size_t equals = one.find('=');
    COL_CHECK(equals != std::string_view::npos, "rules: an edit must be key=value; got \"{}\"; fix it", one);
    edits.push_back({std::string(one.substr(0, equals)), std::string(one.substr(equals + 1))});
    text.remove_prefix(std::min(end + 2, text.size()));
  }
  return edits;
}

std::string rules_markdown() {
  std::string page =
      "# Rules\n\n"
      "Made by `colonnade help --rules`; do not edit.\n\n"
      "Settings that contradict each other are reported before anything starts, all of them at once. Each "
      "message names the\n"
      "settings, the rule, the values and a fix, and ends with the id of the rule. This page gives the "
      "reason for a rule where the\n"
      "message does not, the settings it checks and the message for an example. A test breaks every rule with "
      "its example,\n"
      "applies the fix and expects no error. `evaluate` and `generate` skip rules that concern training "
      "only.\n\n"
      "The rule `range` precedes all: each setting must lie in its own range ([settings.md](settings.md)).\n";
  for (const RuleGroup& group : rule_groups()) {
    page += fmt::format("\n## {}\n", group.title);
    for (const Rule& rule : group.rules) page += section(group, rule);
  }
  return page;
}

}  // namespace colonnade::rules
