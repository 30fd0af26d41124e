// Rules between settings. Each rule is one row of a table: an id, a condition, a message with the values, and
// the edits that fix it. A test checks for every row that it fires and that its edits fix the run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "colonnade/config/run.h"

namespace colonnade::rules {

/// Change that fixes a problem: config::set(run, key, value). The key "world_size" is the number of ranks to
/// start.
struct Edit {
  std::string key;
  std::string value;
};

/// Violated rule.
struct Problem {
  std::string id;           ///< e.g. "heads-tensor"
  std::string text;         ///< "<thing> <rule>; got <values>; <fix>"
  std::vector<Edit> edits;  ///< the fix, all of them together; apply before config::derive

  /// "<thing> <rule>; got <values>; <fix> [<id>]"
  [[nodiscard]] std::string line() const { return text + " [" + id + "]"; }
};

enum class Purpose {
  kTrain,  ///< all rules
  kModel,  ///< rules of model and layout: evaluate, generate, convert
  kPlan,   ///< all rules, but settings that only training needs may be missing (missing_for_training)
  kData,   ///< rules of settings that determine the samples (config::Use::kInspect), any of which may be
           ///< missing: data inspect
};

/// All violated rules of a derived run (config::derive), in table order; empty if the job can start. Never
/// throws for user input.
std::vector<Problem> check(const config::Run& run, Purpose purpose = Purpose::kTrain);
/// Id of the first rule that check would report, ranges of settings excepted. For searches over many
/// layouts, where only the verdict matters.
std::optional<std::string> first_broken(const config::Run& run, Purpose purpose);

/// Flags that training requires and that were not given: "--lr, --train-iters". Empty if none.
std::string missing_for_training(const config::Run& run);

/// Ids of all rules.
std::vector<std::string> rule_ids();

/// One line() per problem.
std::string report(const std::vector<Problem>& problems);

/// Throws ConfigError with `faults` (of config::parse_all) and all violated rules together.
void require(const config::Run& run, Purpose purpose = Purpose::kTrain, std::vector<std::string> faults = {});

/// Micro-batches per step and data-parallel rank: global batch / (micro-batch * data-parallel size); 0 if not
/// an integer. Where the batch size grows (config::batch_schedule), those of its final size.
std::int64_t num_microbatches(const config::Run& run);

}  // namespace colonnade::rules
