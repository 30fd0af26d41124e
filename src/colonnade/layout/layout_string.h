// Reads --pipeline-model-parallel-layout: E embedding, t layer, m multi-token prediction, L head and loss;
// `|` separates virtual stages; x*n repeats a letter, (...)*n a group; commas and blanks mean nothing.
// Or lists of names, one for each stage, as Python writes them:
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

/// `Et*2|(t|)*2L` -> `Ett|t|t|L`. Groups first, then letters, as Megatron does. Throws ConfigError on
/// brackets without partner or factor, nested groups, and results beyond 1,000,000 letters.
std::string expand_layout(std::string_view text);

/// `[["embedding","decoder"],["decoder","loss"]]` -> `Et|tL`; lists may be added and repeated by a number.
/// Throws ConfigError on what is no list of lists of names. `text` is without blanks.
std::string letters_of_lists(std::string_view text);

/// How often each kind of layer must appear.
struct LayoutCounts {
  std::int64_t encoder_layers = 0, layers = 0, predictions = 0;
};

/// The stages of a layout, E first and once, L last and once, `t` for each layer, in front of them `e` for
/// each layer of an encoder; stages between those of E and L may be empty; `m` for each further token, behind
/// the layers and all in one stage, that of L or one before it: the final norm goes there with them. Throws
/// ConfigError with the counts it got unless the number of stages is a multiple of `ranks`. Other letters are
/// refused.
std::vector<StageBlocks> parse_layout(std::string_view text, const LayoutCounts& counts, int ranks);

/// The layout of a model whose layers go into `stages` as evenly as they can, written short:
/// "E(t*4|)*13(t*3|)*2t*3mL". Earlier stages have the layers that are left over. `ends_count`: the embedding
/// stands for a layer, and so do each further token and the head, where a stage has room for them; what is
/// left over goes to the stages before the last one, which keep the fewest micro-batches.
std::string even_layout(const config::Model& model, std::int64_t stages, bool ends_count = false);

}  // namespace colonnade::layout
