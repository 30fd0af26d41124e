// Which samples the evaluations of a run read, and under which names their losses stand.
// Source: Megatron-LM's training.py, evaluate_and_print_results and build_train_valid_test_data_iterators.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/data/batches.h"
#include "colonnade/data/split.h"

namespace colonnade::train {

/// Global batches whose samples have one loss.
struct Reading {
  std::string set;  ///< its name: "validation", "validation-0", "test"
  std::int64_t first_sample = 0;
  std::int64_t batches = 0;
};

/// Whether the run validates after its step `iteration`, besides its end.
bool validation_due(const config::Training& training, std::int64_t iteration);

/// What the validation after `iteration` reads: the next --eval-iters batches of the run; with
/// --full-validation all whole batches of each of `sets`, from its first sample on. The sets of
/// --multiple-validation-sets are validation-NAME (--validation-set-names), or -0, -1, ...
std::vector<Reading> validation_after(std::int64_t iteration, const config::Run& run,
                                      const std::vector<data::Range>& sets);

/// A sentence for each set of a full validation that fills no global batch, and one where there is none; of
/// another validation none.
std::vector<std::string> faults_of_sets(const config::Run& run, const std::vector<data::Range>& sets);

/// A sentence for each set of a full validation: what it reads, and what it leaves out.
std::vector<std::string> told_of_sets(const config::Run& run, const std::vector<data::Range>& sets);

/// Throws Error for a loss that is not finite, of losses that are all the result of a run (--skip-train).
void require_finite(const std::map<std::string, double>& losses);

}  // namespace colonnade::train
