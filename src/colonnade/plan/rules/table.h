// The rows of the table of rules, by area. Private to plan/rules.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "colonnade/plan/rules.h"

namespace colonnade::plan {

/// What a broken rule has to say.
struct Finding {
  std::string thing, rule, got;
  std::vector<Edit> edits;
  std::string way_out;   ///< "": made from the edits
  bool missing = false;  ///< nothing is wrong, but training needs a setting that was not given
};

struct Rule {
  const char* id;
  bool training;  ///< concerns training only
  std::optional<Finding> (*broken)(const config::Run&);
  /// Keys that it judges besides those of its edits, separated by a space: it is silent where the words of
  /// one could not be read.
  const char* judges = "";
};

std::span<const Rule> shape_rules();
std::span<const Rule> pipeline_rules();
std::span<const Rule> schedule_rules();
std::span<const Rule> data_rules();
std::span<const Rule> effect_rules();

inline std::string text(std::int64_t value) { return fmt::format("{}", value); }
inline std::string text(double value) { return fmt::format("{}", value); }
inline std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

}  // namespace colonnade::plan
