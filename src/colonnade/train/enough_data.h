// Whether the data reaches to the end of the run: told before the first step.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/config/training.h"
#include "colonnade/job/job.h"

namespace colonnade::train {

/// The last iteration of a run that is so far as `done`: --train-iters, or where the global batches that fit
/// into what is left of --train-samples end.
std::int64_t last_iteration(const config::Training& training, const job::Counters& done);

/// Samples of train, valid and test that exist; nothing where a split is empty or never ends.
using SplitSizes = std::array<std::optional<std::int64_t>, 3>;

/// A sentence for each split that the run, so far as `done`, would read beyond its end, with the largest
/// number of iterations that it allows. Only blends without weights can be too short: they hold each data set
/// once, as Megatron's, where a run beyond that ends in an error of its sampler.
std::vector<std::string> shortages(const SplitSizes& sizes, const config::Training& training,
                                   const job::Counters& done);

}  // namespace colonnade::train
