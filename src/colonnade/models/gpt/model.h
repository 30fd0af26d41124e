// The GPT family as a list of blocks: embedding, transformer layers, head. Llama, Mistral, GPT-2 and
// their kin are settings of it (config::Model).
#pragma once

#include <memory>
#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/config/parallel.h"
#include "colonnade/layers/context.h"
#include "colonnade/plan/stages.h"
#include "colonnade/tensor/block.h"

namespace colonnade::models::gpt {

/// One virtual stage of the model with initial values. Reads of a batch: `tokens` [b, s];
/// `position_ids`, `labels`, `attention_mask`, `samples` where needed. Gives [s, b, h] between
/// stages; at the end loss [b, s] (Output::kLoss) or logits [b, s, vocabulary] (Output::kLogits).
///
/// Where the end of the model reads the embedding's table (tied embeddings, multi-token prediction) and one
/// rank holds both ends, it reads the same; a last stage apart holds a copy (Parameter::is_copy) whose
/// gradient is summed with the first stage's.
struct BuiltStage {
  tensor::Stage stage;
  tensor::Parameter* word_table = nullptr;  ///< where both ends read it: the table or its copy, where held
};

/// All virtual stages of this rank, in chunk order. `blocks` says what each holds.
std::vector<BuiltStage> build(const std::vector<plan::StageBlocks>& blocks, const config::Model& model,
                              const config::Parallel& parallel, const layers::Context& context,
                              std::int64_t max_sequence);

}  // namespace colonnade::models::gpt
