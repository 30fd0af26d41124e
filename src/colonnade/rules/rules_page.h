// Every rule with an example that breaks it, and docs/reference/rules.md, which is generated from them.
#pragma once

#include <string>
#include <vector>

#include "colonnade/rules/rules.h"

namespace colonnade::rules {

/// Settings that break exactly one rule.
struct RuleExample {
  std::string id;
  config::Run valid;        ///< breaks no rule
  std::vector<Edit> edits;  ///< break this rule when applied to `valid`

  /// `valid` with the edits applied as if given on the command line; not derived.
  [[nodiscard]] config::Run broken() const;
};

/// One example per table row; `range` is not a row.
std::vector<RuleExample> rule_examples();

/// Applies an edit. Throws ConfigError if the value breaks the setting's type or range.
void apply(config::Run& run, const Edit& edit);

/// Edits of "key=value; key=value".
std::vector<Edit> read_edits(std::string_view text);

/// Text of docs/reference/rules.md.
std::string rules_markdown();

}  // namespace colonnade::rules
