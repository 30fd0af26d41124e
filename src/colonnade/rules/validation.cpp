// Rules of validations of whole data sets and of several sets.
#include <algorithm>

#include "colonnade/config/words_of_data.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

std::size_t prefixes_of(const std::vector<std::string>& words) {
  return config::are_pairs(words) ? words.size() / 2 : words.size();
}

/// One prefix is no blend, whatever its weight, where it is of the validation alone.
Broken weights(const Run& r) {
  const config::Data& d = r.data;
  if (!r.training.full_validation) return std::nullopt;
  const char* rule = "with --full-validation data sets have no weights";
  if (config::are_pairs(d.valid_data_path) && prefixes_of(d.valid_data_path) > 1) {
    std::string names;
    for (std::size_t i = 1; i < d.valid_data_path.size(); i += 2)
      names += (names.empty() ? "" : " ") + d.valid_data_path[i];
    return Finding{"--valid-data-path",
                   rule,
                   fmt::format("{}", fmt::join(d.valid_data_path, " ")),
                   {{"valid_data_path", names}},
                   ""};
  }
  if (!config::are_pairs(d.data_path)) return std::nullopt;
  return Finding{
      "--full-validation",
      "needs data sets without weights",
      fmt::format("--data-path {}", fmt::join(d.data_path, " ")),
      {{"full_validation", "false"}, {"multiple_validation_sets", "false"}},
      "leave it out, or name the data of each split (--train-data-path, --valid-data-path) and that of the "
      "validation without weights"};
}

Broken sets_in_full(const Run& r) {
  if (!r.data.multiple_validation_sets || r.training.full_validation) return std::nullopt;
  return Finding{"--multiple-validation-sets",
                 "needs --full-validation",
                 "none",
                 {{"full_validation", "true"}},
                 "write --full-validation too"};
}

Broken sets_of_their_own(const Run& r) {
  const config::Data& d = r.data;
  if (!d.multiple_validation_sets || !d.valid_data_path.empty() || !d.per_split_data_args_path.empty())
    return std::nullopt;
  return Finding{"--multiple-validation-sets",
                 "is of the prefixes of --valid-data-path",
                 "none",
                 {{"multiple_validation_sets", "false"}, {"validation_set_names", ""}},
                 "leave it out, or write --valid-data-path PREFIX PREFIX ..."};
}

Broken names_of_sets(const Run& r) {
  const config::Data& d = r.data;
  const std::vector<std::string>& names = d.validation_set_names;
  if (names.empty()) return std::nullopt;
  Finding found{"--validation-set-names",
                "",
                fmt::format("{}", fmt::join(names, " ")),
                {{"validation_set_names", ""}},
                "leave them out"};
  std::vector<std::string> each = names;
  std::ranges::sort(each);
  const std::size_t sets = prefixes_of(d.valid_data_path);
  if (!d.multiple_validation_sets) {
    found.rule = "are those of --multiple-validation-sets";
  } else if (std::ranges::adjacent_find(each) != each.end() || each.front().empty()) {
    found.rule = "must differ from each other";
  } else if (sets > 0 && names.size() != sets) {
    found.rule = "must be one for each prefix of --valid-data-path";
    found.got = fmt::format("{} names and {} prefixes", names.size(), sets);
  } else {
    return std::nullopt;
  }
  return found;
}

constexpr Rule kValidation[] = {
    {"validation-weights", true, weights, "valid_data_path=0.3 b 0.7 c",
     "One pass has every sample once, whatever a data set weighs.", "data_path"},
    {"validation-sets-in-full", true, sets_in_full, "full_validation=false",
     "The samples that a validation goes on with are counted for one set.", "multiple_validation_sets"},
    {"validation-sets-paths", true, sets_of_their_own,
     "valid_data_path=", "A share of --data-path is one set, and so are made-up tokens.",
     "valid_data_path per_split_data_args_path"},
    {"validation-set-names", true, names_of_sets, "validation_set_names=books",
     "A loss stands under the name of its set.", "multiple_validation_sets valid_data_path"},
};

}  // namespace

std::span<const Rule> validation_rules() { return kValidation; }

}  // namespace colonnade::rules
