// The beginning of an error message: the thing and the rule it violates.
#pragma once

#include <string>
#include <string_view>

namespace colonnade {

/// "<thing> must ..." for rules that begin with "must", else "<thing>: <rule>".
inline std::string fault_text(std::string_view thing, std::string_view rule) {
  return std::string(thing) + (rule.starts_with("must ") ? " " : ": ") + std::string(rule);
}

}  // namespace colonnade
