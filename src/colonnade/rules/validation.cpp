// Rules for full validation and multiple validation sets.
#include <algorithm>

#include "colonnade/config/data_flags.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

std::size_t prefixes_of(const std::vector<std::string>& words) {
  return config::is_weighted_blend(words) ? words.size() / 2 : words.size();
}

/// A single validation prefix may have a weight, which is ignored.
Broken validation_weights(const Run& r) {
  const config::Data& d = r.data;
  if (!r.training.full_validation) return std::nullopt;
  const char* rule = "must not have weights with --full-validation";
  if (config::is_weighted_blend(d.valid_data_path) && prefixes_of(d.valid_data_path) > 1) {
    std::string names;
    for (std::size_t i = 1; i < d.valid_data_path.size(); i += 2)
      names += (names.empty() ? "" : " ") + d.valid_data_path[i];
    return Finding{"--valid-data-path",
                   rule,
                   fmt::format("{}", fmt::join(d.valid_data_path, " ")),
                   {{"valid_data_path", names}},
                   ""};
  }
  if (!config::is_weighted_blend(d.data_path)) return std::nullopt;
  return Finding{"--full-validation",
                 "requires data sets without weights",
                 fmt::format("--data-path {}", fmt::join(d.data_path, " ")),
                 {{"full_validation", "false"}, {"multiple_validation_sets", "false"}},
                 "remove the flag, or set --train-data-path, and --valid-data-path without weights"};
}

Broken multiple_sets_need_full(const Run& r) {
  if (!r.data.multiple_validation_sets || r.training.full_validation) return std::nullopt;
  return Finding{"--multiple-validation-sets",
                 "requires --full-validation",
                 "none",
                 {{"full_validation", "true"}},
                 "add --full-validation"};
}

Broken multiple_sets_need_paths(const Run& r) {
  const config::Data& d = r.data;
  if (!d.multiple_validation_sets || !d.valid_data_path.empty() || !d.per_split_data_args_path.empty())
    return std::nullopt;
  return Finding{"--multiple-validation-sets",
                 "requires --valid-data-path or --per-split-data-args-path",
                 "none",
                 {{"multiple_validation_sets", "false"}, {"validation_set_names", ""}},
                 "remove the flag, or add --valid-data-path PREFIX PREFIX ..."};
}

Broken set_names(const Run& r) {
  const config::Data& d = r.data;
  const std::vector<std::string>& names = d.validation_set_names;
  if (names.empty()) return std::nullopt;
  Finding found{"--validation-set-names",
                "",
                fmt::format("{}", fmt::join(names, " ")),
                {{"validation_set_names", ""}},
                "remove the flag"};
  std::vector<std::string> sorted = names;
  std::ranges::sort(sorted);
  const std::size_t sets = prefixes_of(d.valid_data_path);
  if (!d.multiple_validation_sets) {
    found.rule = "requires --multiple-validation-sets";
  } else if (std::ranges::adjacent_find(sorted) != sorted.end() || sorted.front().empty()) {
    found.rule = "must be non-empty and unique";
  } else if (sets > 0 && names.size() != sets) {
    found.rule = "must have one name per prefix of --valid-data-path";
    found.got = fmt::format("{} names and {} prefixes", names.size(), sets);
  } else {
    return std::nullopt;
  }
  return found;
}

constexpr Rule kValidation[] = {
    {"validation-weights", true, validation_weights, "valid_data_path=0.3 b 0.7 c",
     "A full validation evaluates every sample once, so weights would be ignored.", "data_path"},
    {"validation-sets-in-full", true, multiple_sets_need_full, "full_validation=false",
     "A partial validation continues where the previous one ended, which is tracked for one set only.",
     "multiple_validation_sets"},
    {"validation-sets-paths", true, multiple_sets_need_paths,
     "valid_data_path=", "The validation split of --data-path is one set, and so is mock data.",
     "valid_data_path per_split_data_args_path"},
    {"validation-set-names", true, set_names, "validation_set_names=books",
     "Losses are logged under the names of their sets.", "multiple_validation_sets valid_data_path"},
};

}  // namespace

std::span<const Rule> validation_rules() { return kValidation; }

}  // namespace colonnade::rules
