// Runs that break a rule: those of the table of rules, and others on the same sound runs.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "colonnade/config/derive.h"
#include "colonnade/plan/rules_page.h"

namespace colonnade::plan::test {

inline std::vector<Problem> problems_of(config::Run r) {
  config::derive(r);
  return check(r);
}

inline std::vector<std::string> ids_of(const config::Run& r) {
  std::vector<std::string> ids;
  for (const Problem& problem : problems_of(r)) ids.push_back(problem.id);
  return ids;
}

inline const RuleExample& example_of(const std::string& id) {
  static const std::vector<RuleExample> table = rule_examples();
  return *std::ranges::find(table, id, &RuleExample::id);
}

/// The example of the table whose sound run is that of `id`, with other edits.
inline RuleExample example(const std::string& text) {
  const std::string id = text.substr(0, text.find(": "));
  return {id, example_of(id).sound, read_edits(text.substr(id.size() + 2))};
}

inline std::string words(const RuleExample& e) {
  std::string text = e.id + ":";
  for (const Edit& edit : e.edits) text += " " + edit.key + "=" + edit.value;
  return text;
}

}  // namespace colonnade::plan::test
