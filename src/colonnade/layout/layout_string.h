// Parser of --pipeline-model-parallel-layout: E embedding, e encoder layer, t layer, m MTP layer, L head and
// loss;
// `|` separates virtual stages; x*n repeats a letter, (...)*n a group; commas and blanks are ignored.
// Alternatively a Python list of names per stage:
// [["embedding","decoder"],["decoder"]*2+["loss"]]. Source: Megatron's
// core/transformer/pipeline_parallel_layer_layout.py.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/layout/stages.h"

namespace colonnade::layout {

/// Expands repetitions: `Et*2|(t|)*2L` -> `Ett|t|t|L`, groups before letters as in Megatron. Throws
/// ConfigError for unbalanced brackets, groups without factor, nested groups, and results beyond 1,000,000
/// letters.
std::string expand_layout(std::string_view text);

/// Converts lists: `[["embedding","decoder"],["decoder","loss"]]` -> `Et|tL`; lists may be added and
/// multiplied. `text` has no blanks. Throws ConfigError unless it is a list of lists of names.
std::string letters_from_lists(std::string_view text);

/// Stages of a layout: E once and first, `e` per encoder layer before `t` per layer, then `m` per MTP layer,
/// all in one stage together with the final norm, and L once and last. Stages between those of E and L may be
/// empty. Throws ConfigError for any other layout, or unless the number of stages is a multiple of `ranks`.
std::vector<StageBlocks> parse_layout(std::string_view text, const config::Model& model, int ranks);

/// Layout that splits a model's layers into `stages` as evenly as possible, in short form:
/// "E(t*4|)*13(t*3|)*2t*3mL". Earlier stages get the remainder. `ends_count`: embedding, head and each MTP
/// layer count as a layer, if a stage has space for them; then the stages before the last one get the
/// remainder, since they have the fewest in-flight micro-batches.
std::string even_layout(const config::Model& model, std::int64_t stages, bool ends_count = false);

}  // namespace colonnade::layout
