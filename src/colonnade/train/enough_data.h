// Whether the data reaches to the end of the run: told before the first step.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/data/batches.h"
#include "colonnade/data/samples/gpt/gpt_batches.h"

namespace colonnade::train {

/// Samples of train, valid and test that exist; nothing where a split is empty or never ends.
using SplitSizes = std::array<std::optional<std::int64_t>, 3>;

/// A sentence for each split that the run, so far as `done`, would read beyond its end, with the largest
/// number of iterations that it allows. Only blends without weights can be too short: they hold each data set
/// once, as Megatron's, where a run beyond that ends in an error of its sampler. A full
/// validation never does (faults_of_sets).
std::vector<std::string> shortages(const SplitSizes& sizes, const config::Training& training,
                                   const data::SoFar& done);

/// A sentence for each data set of a split that is read more than once for the samples asked of it, the most
/// read ones first; of more than 16 the last one counts the others. `split`: "train", "valid" or "test".
std::vector<std::string> repeats(const std::vector<data::SampleOrder>& orders, std::string_view split);

/// What a run says of its data before its first step: repeats of all splits, and that a validation that is
/// asked for has no data.
std::vector<std::string> told_of_data(const config::Run& run, const data::Splits& splits);

}  // namespace colonnade::train
