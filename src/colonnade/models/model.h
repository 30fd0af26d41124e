// Builds the blocks of a rank's pipeline stages from the settings: GPT, T5 or BERT.
#pragma once

#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/config/parallel.h"
#include "colonnade/layers/context.h"
#include "colonnade/layout/blocks.h"
#include "colonnade/tensor/block.h"

namespace colonnade::models {

/// All virtual stages of this rank with initial values, in model chunk order; `blocks` lists their contents,
/// and each block id gives one block, except that recomputed layers are joined and so are, on one stage, the
/// final norm and the blocks after it. Rotary tables have `max_sequence` positions or more.
///
/// Batch fields read (tensor/batch.h): kTokens, and kLabels and kSamples if needed;
///   GPT   kPositionIds, documents
///   BERT  kPadding, kTokenTypes, with a binary head kSwapped
///   T5    those of t5/blocks.h
/// Activations between stages are [s, b, h] (t5/blocks.h: of T5); in training, stages after the final norm
/// pass layout::StageBlocks::states_out of them concatenated. The last stage returns loss [b, s]
/// (Output::kLoss) or logits [b, s, vocabulary] (Output::kLogits); bert::HeadBlock documents BERT's.
///
/// The last stage may read the word embedding table (layout::shared_parameter). All readers on a rank share
/// one table; a rank without the embedding holds a copy (Parameter::is_tied_copy), whose gradient is
/// all-reduced with the first stage's.
std::vector<tensor::Stage> build(const std::vector<layout::StageBlocks>& blocks, const config::Model& model,
                                 const config::Parallel& parallel, const layers::Context& context,
                                 std::int64_t max_sequence);

}  // namespace colonnade::models
