// Saved activations of a micro-batch by part of a stage; cost/activations.h has the formulas of a whole
// stage.
#pragma once

#include "colonnade/cost/activations/sequences.h"
#include "colonnade/layout/stages.h"

namespace colonnade::cost {

/// Bytes of a layer that selective recomputation does not save.
struct RecomputedParts {
  RecomputedParts(const config::Run& run, const Sizes& z, std::int64_t layer);
  std::int64_t norm = 0;                    ///< output of each norm
  std::int64_t core_attention = 0;          ///< scores, softmax and weighted sum
  std::int64_t qkv = 0;                     ///< queries, keys and values of MLA
  std::int64_t mlp = 0;                     ///< whole MLP or MoE
  std::int64_t activation = 0, shared = 0;  ///< activation of routed experts; shared experts
};

/// Router outputs, permutation indices and combine weights of an MoE layer.
std::int64_t routing_activations(const Sizes& z);

/// Core attention (scores, softmax, weighted sum) without queries, keys, values and the projection's input.
std::int64_t core_attention_activations(const config::Run& run, const Sizes& z, std::int64_t layer);

/// fc1 and activation outputs of a dense MLP.
std::int64_t mlp_activations(const Sizes& z);

/// MLP or MoE of a layer, between its norm and the residual sum.
std::int64_t mlp_or_moe_activations(const Sizes& z, std::int64_t layer, const RecomputedParts& recomputed);

/// One layer; MTP layers (numbers past the last) follow the last one. With an encoder it includes the copy of
/// the other sequence's rows.
std::int64_t layer_activations(const Sequences& s, std::int64_t layer);

/// Cross-attention scores of all local heads.
std::int64_t cross_score_bytes(const Sequences& s);

/// Cross-attention: norm and residual sum, queries, keys and values, core attention, and the projection's
/// input. 0 in layers without it.
std::int64_t cross_attention_activations(const Sequences& s, std::int64_t layer);

/// Input and output of the final norm.
std::int64_t final_norm_activations(const Sizes& z);

/// One MTP depth: its shifted tokens, their embeddings, the projection's input, both norms, a layer and its
/// final norm.
std::int64_t mtp_activations(const Sequences& s);

/// BERT's language-model head transform (input and output of GELU, norm) and binary head.
std::int64_t lm_head_transform_activations(const Sizes& z);

/// Logits of the next token with their statistics (one more with tensor parallelism) and labels.
std::int64_t logit_activations(const Sequences& s);
/// The same for one MTP depth, with shifted labels and mask.
std::int64_t mtp_logit_activations(const Sequences& s);

/// Final norm, MTP layers and head of the stage. If they are on two stages, the first sends a copy of the
/// last state, and the second saves everything it received.
std::int64_t post_process_activations(const Sequences& s, const layout::StageBlocks& stage);

/// Whether MTP layers and head are on two stages.
bool mtp_apart_from_head(const config::Model& model, const layout::StageBlocks& stage);

/// Position ids and token types. Position ids of one full sequence are a view; those of several sequences or
/// of a sequence shard are copied. Batch position ids and token types are copied if the shard of a tensor
/// rank is not contiguous.
std::int64_t embedding_activations(const config::Run& run, const Sizes& z);

}  // namespace colonnade::cost
