// Rules between settings. Each is one row of a table: an id, a condition, the reason with the values
// it saw and the edits that mend it. A test proves for every row that it fires and that its edits pass.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "colonnade/config/run.h"

namespace colonnade::rules {

/// A change that mends a problem: config::set(run, key, value). The key "world_size" means the
/// number of ranks that are started.
struct Edit {
  std::string key;
  std::string value;
};

/// A broken rule.
struct Problem {
  std::string id;           ///< e.g. "heads-tensor"
  std::string text;         ///< "<thing> <rule>; got <values>; <fix>"
  std::vector<Edit> edits;  ///< together they are the fix; apply them before config::derive

  /// "<thing> <rule>; got <values>; <fix> [<id>]"
  [[nodiscard]] std::string line() const { return text + " [" + id + "]"; }
};

enum class Purpose {
  kTrain,  ///< all rules
  kModel,  ///< only those about model and layout: evaluate, generate, convert
  kPlan,   ///< all rules, but settings that only training needs may be missing (missing_for_training)
  kData,   ///< only those about what decides samples (config::Use::kInspect), which may be missing: data
           ///< inspect
};

/// All broken rules of a derived run (config::derive), in the order of the table; empty when the
/// job can start. Never throws for what a user can set.
std::vector<Problem> check(const config::Run& run, Purpose purpose = Purpose::kTrain);
/// The id of the first rule that check would tell, ranges of settings aside; for searches, which ask it of
/// many runs that differ in their layout.
std::optional<std::string> first_broken(const config::Run& run, Purpose purpose);

/// What training needs besides and was not given, in words: "--lr, --train-iters". Empty when nothing.
std::string missing_for_training(const config::Run& run);

/// The ids of all rules.
std::vector<std::string> rule_ids();

/// One line() per problem.
std::string report(const std::vector<Problem>& problems);

/// Throws ConfigError with `faults` (of config::parse_all) and all broken rules together.
void require(const config::Run& run, Purpose purpose = Purpose::kTrain, std::vector<std::string> faults = {});

/// Micro-batches of a step and data rank: global batch / (micro-batch * data ranks); 0 when that is
/// not a whole number.
std::int64_t num_microbatches(const config::Run& run);

}  // namespace colonnade::rules
