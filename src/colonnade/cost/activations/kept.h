// Bytes that parts of a stage keep of a micro-batch between forward and backward; what cost/activations.h
// says of a stage, part by part.
#pragma once

#include "colonnade/cost/activations/sequences.h"
#include "colonnade/layout/stages.h"

namespace colonnade::cost {

/// What selective recomputation makes again of the parts of a layer.
struct Again {
  Again(const config::Run& run, const Sizes& z, std::int64_t layer);
  std::int64_t norm = 0;                    ///< of each of the two
  std::int64_t core = 0;                    ///< of attention
  std::int64_t heads = 0;                   ///< queries, keys and values of multi-latent attention
  std::int64_t mlp = 0;                     ///< of the whole MLP or mixture
  std::int64_t activation = 0, shared = 0;  ///< of experts
};

/// Numbers that say which row of a mixture is whose token's and where it lies, and the weights.
std::int64_t routing_activations(const Sizes& z);

/// Of scores, softmax and weighted sum, besides queries, keys, values and the projection's input.
std::int64_t core_activations(const config::Run& run, const Sizes& z, std::int64_t layer);

std::int64_t mlp_activations(const Sizes& z);

/// Kept of a layer's MLP or mixture, between its norm and the residual sum.
std::int64_t mlp_part(const Sizes& z, std::int64_t layer, const Again& again);

/// Of the layer with a number; those behind the last one are of its kind. With an encoder the copy of the
/// other sequence's rows is of it.
std::int64_t layer_activations(const Sequences& s, std::int64_t layer);

/// Scores of all heads of a decoder's tokens for those of its encoder.
std::int64_t cross_scores(const Sequences& s);

/// Of attention to an encoder: norm and sum, queries, keys and values, what the kernel keeps, and the
/// projection's input. Nothing in other layers.
std::int64_t cross_activations(const Sequences& s, std::int64_t layer);

/// Input and output of the final norm.
std::int64_t final_norm_activations(const Sizes& z);

/// Of one further token: its tokens, moved by their distance; the embedded tokens, what is projected, and
/// norms of both; a layer and its norm.
std::int64_t prediction_activations(const Sequences& s);

/// Of what a BERT's logits are made of: what GELU reads and makes, and that normed; and of its binary head.
std::int64_t transform_activations(const Sizes& z);

/// Logits of the next token with their statistics (combined ones are longer) and labels.
std::int64_t logit_activations(const Sequences& s);
/// The same of a further token; its labels and mask are moved by their distance.
std::int64_t further_logit_activations(const Sequences& s);

/// What the stage holds of final norm, further tokens and head. Where these are in two stages, the first
/// hands on a copy of the last state, and the second keeps all that it was given.
std::int64_t end_activations(const Sequences& s, const layout::StageBlocks& stage);

/// Whether further tokens and head are in two stages.
bool ends_apart(const config::Model& model, const layout::StageBlocks& stage);

/// Positions of one sequence lie where they were made; those of several, or of a cut one, are copied. Those
/// of the batch, and kinds of tokens, are copied where the part of a tensor rank does not lie together.
std::int64_t embedding_activations(const config::Run& run, const Sizes& z);

}  // namespace colonnade::cost
