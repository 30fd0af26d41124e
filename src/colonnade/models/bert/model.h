// BERT as a list of blocks: embedding of tokens, positions and kinds of tokens, layers that see both ways,
// heads. The first two are a GPT's.
#pragma once

#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/config/parallel.h"
#include "colonnade/layers/context.h"
#include "colonnade/layout/stages.h"
#include "colonnade/tensor/block.h"

namespace colonnade::models::bert {

/// All virtual stages of this rank with initial values, in chunk order. `blocks` says what each holds. They
/// read of a batch: `tokens` [b, s]; `padding` [b, s], true where nobody may see a token (optional);
/// `token_types` [b, s] where tokens have kinds; `labels`; `samples` where needed; `swapped` [b] with a
/// binary head. They hand on [s, b, h]; what the last one gives, HeadBlock says. With tied embeddings a rank
/// of the last stage without the embedding holds a copy of its table (Parameter::is_copy).
std::vector<tensor::Stage> build(const std::vector<layout::StageBlocks>& blocks, const config::Model& model,
                                 const config::Parallel& parallel, const layers::Context& context,
                                 std::int64_t max_sequence);

}  // namespace colonnade::models::bert
