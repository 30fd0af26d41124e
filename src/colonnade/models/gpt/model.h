// GPT as a list of blocks: embedding, transformer layers, head. Llama, Mistral, GPT-2 and similar decoders
// differ by settings (config::Model).
#pragma once

#include <memory>
#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/config/parallel.h"
#include "colonnade/layers/context.h"
#include "colonnade/layout/stages.h"
#include "colonnade/tensor/block.h"

namespace colonnade::models::gpt {

/// All virtual stages of this rank with initial values, in model chunk order; `blocks` lists their contents.
/// Batch keys read: `tokens` [b, s]; `position_ids`, `labels`, `attention_mask`, `samples` if needed.
/// Activations between stages are [s, b, h]; in training, stages after the MTP layers pass 1 + D of them
/// concatenated (layout::StageBlocks::states_out). The last stage returns loss [b, s] (Output::kLoss) or
/// logits [b, s, vocabulary] (Output::kLogits).
///
/// The final stage may read the word embedding table (tied embeddings, multi-token prediction). All readers
/// on a rank share one table; a rank without the embedding holds a copy (Parameter::is_tied_copy), whose
/// gradient is all-reduced with the first stage's.
std::vector<tensor::Stage> build(const std::vector<layout::StageBlocks>& blocks, const config::Model& model,
                                 const config::Parallel& parallel, const layers::Context& context,
                                 std::int64_t max_sequence);

}  // namespace colonnade::models::gpt
