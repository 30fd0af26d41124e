// Checks before the first step that the data lasts until the end of the run.
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

/// Numbers of samples in train, valid and test; none where a split is empty or endless.
using SplitSizes = std::array<std::optional<std::int64_t>, 3>;

/// One sentence for each split that the run, at progress `done`, would read beyond its end, with the largest
/// possible number of iterations. Only blends without weights can be too short: they use each dataset once,
/// as in Megatron, where a longer run fails in the sampler. A full validation never reads too far
/// (validation_faults).
std::vector<std::string> shortages(const SplitSizes& sizes, const config::Training& training,
                                   const data::RunProgress& done);

/// One sentence for each dataset of a split that is read for more than one epoch, the most repeated first;
/// the last of more than 16 counts the others. `split`: "train", "valid" or "test".
std::vector<std::string> repeats(const std::vector<data::SampleOrder>& orders, std::string_view split);

/// Notes on the data before the first step: repeats in all splits, and a requested validation without data.
std::vector<std::string> data_notes(const config::Run& run, const data::Splits& splits);

}  // namespace colonnade::train
