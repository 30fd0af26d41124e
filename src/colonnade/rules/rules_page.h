// Every rule with an example that breaks it, and docs/reference/rules.md, which is made of them.
#pragma once

#include <string>
#include <vector>

#include "colonnade/rules/rules.h"

namespace colonnade::rules {

/// Settings that break one rule and no other.
struct RuleExample {
  std::string id;
  config::Run sound;        ///< breaks no rule
  std::vector<Edit> edits;  ///< made in it, they break this one

  /// The run with the edits, as if they were given on the command line; not derived.
  [[nodiscard]] config::Run broken() const;
};

/// One for each rule of the table. That a setting must lie in its own range is no row of it.
std::vector<RuleExample> rule_examples();

/// Makes an edit. Throws ConfigError when the value breaks the setting's type or range.
void apply(config::Run& run, const Edit& edit);

/// "key=value; key=value" as edits.
std::vector<Edit> read_edits(std::string_view text);

/// docs/reference/rules.md.
std::string rules_markdown();

}  // namespace colonnade::rules
