// T5 as a list of blocks: embedding of both sequences, layers of the encoder, layers of the decoder, head.
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

/// All virtual stages of this rank with initial values, in chunk order. `blocks` says what each holds: layers
/// of the encoder, of the decoder, or the last of one and the first of the other. They read of a batch
/// `encoder_tokens` [b, t], `encoder_padding` [b, t] (bool, true: no token; optional), and of the decoder
/// `tokens` [b, s], `labels` [b, s] and `samples` where needed.
///
/// Blocks hand on both sequences side by side, [t + s, b, h] ([t / tp + s / tp, b, h] with sequence
/// parallelism: a rank's part of the one and of the other). A layer of the encoder changes the first rows,
/// one of the decoder the last ones, which it computes out of both. So the activations of all stages have one
/// shape and one gradient, a stage may begin at any layer, and one table of embeddings at the front is enough
/// for both sequences, at the price of the decoder's rows travelling through the encoder's stages. Every
/// layer copies the rows that it leaves alone.
///
/// The tables of relative positions lie with the first layer of their kind on a rank; other stages with such
/// layers hold copies (layout::HeldBy), whose gradients are summed.
std::vector<tensor::Stage> build(const std::vector<layout::StageBlocks>& blocks, const config::Model& model,
                                 const config::Parallel& parallel, const layers::Context& context,
                                 const config::Training& training);

}  // namespace colonnade::models::t5
