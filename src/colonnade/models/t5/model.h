// T5 as a list of blocks: embedding of both sequences, encoder layers, decoder layers, head.
// Source: Raffel et al. 2020; Megatron's core/models/T5.
#pragma once

#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/config/parallel.h"
#include "colonnade/config/training.h"
#include "colonnade/layers/context.h"
#include "colonnade/layout/stages.h"
#include "colonnade/tensor/block.h"

namespace colonnade::models::t5 {

/// All virtual stages of this rank with initial values, in model chunk order; `blocks` lists their contents:
/// encoder layers, decoder layers, or the last of one and the first of the other. Batch keys read:
/// `encoder_tokens` [b, t], `encoder_padding` [b, t] (bool, true: padding; optional), and for the decoder
/// `tokens` [b, s], `labels` [b, s] and `samples` if needed.
///
/// Activations between blocks concatenate both sequences, [t + s, b, h] ([t / tp + s / tp, b, h] with
/// sequence parallelism: the rank's shards of both). Encoder layers update the first rows, decoder layers the
/// last ones, computed from both. All stages thus have activations of one shape with one gradient, a stage
/// may begin at any layer, and one embedding table in the first stage serves both sequences. The price:
/// decoder rows pass through the encoder's stages, and every layer copies the rows that it does not update.
///
/// The first layer of a stack on a rank holds its relative position bias table; other stages with layers of
/// the stack hold copies (layout::HeldBy), whose gradients are all-reduced.
std::vector<tensor::Stage> build(const std::vector<layout::StageBlocks>& blocks, const config::Model& model,
                                 const config::Parallel& parallel, const layers::Context& context,
                                 const config::Training& training);

}  // namespace colonnade::models::t5
