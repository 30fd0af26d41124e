// Reads --pipeline-model-parallel-layout: E embedding, t layer, m multi-token prediction, L head and loss;
// `|` separates virtual stages; x*n repeats a letter, (...)*n a group; commas and blanks mean nothing.
// Source: Megatron's core/transformer/pipeline_parallel_layer_layout.py.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/plan/stages.h"

namespace colonnade::plan {

/// `Et*2|(t|)*2L` -> `Ett|t|t|L`. Groups first, then letters, as Megatron does. Throws ConfigError on
/// brackets without partner or factor, nested groups, and results beyond 1,000,000 letters.
std::string expand_layout(std::string_view text);

/// The stages of a layout, E first and once, L last and once, `t` num_layers times; stages between
/// those of E and L may be empty; `m` num_predictions times, in front of L in its stage. Throws ConfigError
/// with the counts it got unless the number of stages is a multiple of `ranks`. Other letters are refused.
std::vector<StageBlocks> parse_layout(std::string_view text, std::int64_t num_layers,
                                      std::int64_t num_predictions, int ranks);

}  // namespace colonnade::plan
