// The GPT family as a list of blocks: embedding, transformer layers, head. Llama, Mistral, GPT-2 and
// their kin are settings of it (config::Model).
#pragma once

#include <memory>
#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/config/parallel.h"
#include "colonnade/layers/context.h"
#include "colonnade/layout/stages.h"
#include "colonnade/tensor/block.h"

namespace colonnade::models::gpt {

/// All virtual stages of this rank with initial values, in chunk order. `blocks` says what each holds. They
/// read of a batch: `tokens` [b, s]; `position_ids`, `labels`, `attention_mask`, `samples` where needed. They
/// hand on [s, b, h], in training from the layers of further tokens on 1 + D of them one after the other
/// (layout::StageBlocks::states_out); the last one gives loss [b, s] (Output::kLoss) or logits
/// [b, s, vocabulary] (Output::kLogits).
///
/// Where the end of the model reads the embedding's table (tied embeddings, multi-token prediction) all of a
/// rank read the same; a rank without the embedding holds a copy (Parameter::is_copy) whose gradient is
/// summed with the first stage's.
std::vector<tensor::Stage> build(const std::vector<layout::StageBlocks>& blocks, const config::Model& model,
                                 const config::Parallel& parallel, const layers::Context& context,
                                 std::int64_t max_sequence);

}  // namespace colonnade::models::gpt
