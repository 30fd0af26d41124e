// Sample ranges of the evaluations of a run, and the names of their losses.
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

/// A range of samples evaluated to one loss.
struct EvalRange {
  std::string set;  ///< name of the loss: "validation", "validation-0", "test"
  std::int64_t first_sample = 0;
  std::int64_t samples = 0;
};

/// Whether the run validates after step `iteration`, apart from its end.
bool validation_due(const config::Training& training, std::int64_t iteration);

/// Ranges of the validation after `iteration`: the next --eval-iters batches of the run; with
/// --full-validation all samples of each of `sets`, the last of which may fill a batch in part. The sets of
/// --multiple-validation-sets are validation-NAME (--validation-set-names), or -0, -1, ...
std::vector<EvalRange> validation_ranges(std::int64_t iteration, const config::Run& run,
                                         const std::vector<data::Range>& sets);

/// One sentence for each set without samples for a full validation, and one where there is no set; empty
/// without --full-validation.
std::vector<std::string> validation_faults(const config::Run& run, const std::vector<data::Range>& sets);

/// One sentence for each set of a full validation: how many samples it reads, and how many of them fill a
/// batch in part.
std::vector<std::string> validation_notes(const config::Run& run, const std::vector<data::Range>& sets);

/// Throws Error for a loss that is not finite, of the losses that are the result of --skip-train.
void require_finite(const std::map<std::string, double>& losses);

}  // namespace colonnade::train
