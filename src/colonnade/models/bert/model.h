// BERT as a list of blocks: embeddings of tokens, positions and token types, bidirectional layers, heads. The
// embedding and layer blocks are a GPT's.
#pragma once

#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/config/parallel.h"
#include "colonnade/layers/context.h"
#include "colonnade/layout/stages.h"
#include "colonnade/tensor/block.h"

namespace colonnade::models::bert {

/// All virtual stages of this rank with initial values, in model chunk order; `blocks` lists their contents.
/// Batch keys read: `tokens` [b, s]; `padding` [b, s], true for masked tokens (optional); `token_types` [b,
/// s] if the model has them; `labels`; `samples` if needed; `swapped` [b] with a binary head. Activations
/// between stages are [s, b, h]; HeadBlock documents the last stage's output. With tied embeddings, a last
/// stage without the embedding holds a copy of its table (Parameter::is_tied_copy).
std::vector<tensor::Stage> build(const std::vector<layout::StageBlocks>& blocks, const config::Model& model,
                                 const config::Parallel& parallel, const layers::Context& context,
                                 std::int64_t max_sequence);

}  // namespace colonnade::models::bert
