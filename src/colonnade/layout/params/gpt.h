// The parameters of a GPT-class model, of an encoder (BERT), or of an encoder and a decoder (T5), one
// function per part: names, shapes, cuts, start. Layers are built from these structs; checkpoints, converters
// and the memory plan read the same ones. Names are Megatron's global names with layer numbers:
// "decoder.layers.3.mlp.linear_fc1.weight". Source: Megatron's core/models/{gpt,bert,T5},
// core/transformer/{attention,mlp}.py; Shoeybi et al. 2019.
//
// Cut over tp: qkv and fc1 by rows, with their biases; proj and fc2 by columns, their biases whole;
// word embeddings and output layer by rows of the vocabulary, filled up to a multiple of
// make_vocab_size_divisible_by * tp. Norms and position embeddings are whole.
//
// Gradients partial over tp (each rank sees a part of the sequence, or of the heads):
//   with sequence parallelism   norms, row-parallel biases, position embeddings
//   always                      q and k norms: every rank normalises its own heads
//   of a router                 with sequence parallelism: every rank routes its part of the sequence
// Experts of a layer are one parameter, cut by experts over ep and inside each expert over etp. The biases of
// their second product are whole on expert tensor ranks: one of them adds it, all have its whole gradient.
//
// A key or value head that several ranks hold (tp > query groups) is a run with several holders in
// layout::shard; its gradient is summed over them.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/config/parallel.h"
#include "colonnade/layout/param.h"
#include "colonnade/layout/params/latent_attention.h"
#include "colonnade/layout/params/parts.h"

namespace colonnade::layout {

struct AttentionParams {
  NormParams input_norm;
  LinearParams qkv;  ///< rows [all q heads | all k groups | all v groups], cut by heads
  std::optional<NormParams> q_norm, k_norm;
  std::optional<ParamSpec> sinks;  ///< [heads], a logit that each head's scores compete with
  LinearParams proj;
};
/// Attention of a decoder's tokens to those of its encoder: as many groups as heads.
struct CrossAttentionParams {
  NormParams norm;
  LinearParams q;   ///< rows [heads]
  LinearParams kv;  ///< rows [all k heads | all v heads]
  LinearParams proj;
};
struct MlpParams {
  NormParams norm;
  LinearParams fc1;  ///< rows [gate | up] when gated; by turns with --quick-geglu
  LinearParams fc2;
};
/// In place of an MLP: experts, and shared ones that every token passes.
struct MoeParams {
  NormParams norm;
  ParamSpec router;                      ///< [experts, h]
  std::optional<ParamSpec> router_bias;  ///< [experts]
  std::optional<ParamSpec> expert_bias;  ///< [experts], moved once a step, not trained
  ParamSpec fc1;                         ///< [experts, gate and up, h]
  ParamSpec fc2;                         ///< [experts, h, ffn]
  std::optional<ParamSpec> fc1_bias;     ///< [experts, gate and up]
  std::optional<ParamSpec> fc2_bias;     ///< [experts, h], whole on expert tensor ranks
  std::optional<LinearParams> shared_fc1, shared_fc2;
  std::optional<ParamSpec> shared_gate;  ///< [1, h]
};
struct LayerParams {
  std::variant<AttentionParams, LatentAttentionParams> attention;
  std::optional<NormParams> post_attention_norm;  ///< of what attention gives
  std::optional<CrossAttentionParams> cross;      ///< of a decoder that has an encoder
  std::variant<MlpParams, MoeParams> mlp;
  std::optional<NormParams> post_mlp_norm;  ///< of what the MLP gives
  std::optional<NormParams> final_norm;     ///< behind the last layer of an encoder
};
/// One further token that training predicts: x = W [norm(embedding) | norm(hidden)], then a layer.
struct PredictionParams {
  NormParams enorm, hnorm;
  ParamSpec eh_proj;  ///< [h, 2 h], the same on all tensor ranks
  LayerParams layer;
  NormParams final_norm;
};
struct EmbeddingParams {
  ParamSpec word;                     ///< [vocabulary, h]
  std::optional<ParamSpec> position;  ///< [max positions, h], learned positions only
  std::optional<ParamSpec> type;      ///< [token types, h]
};
struct FinalParams {
  NormParams norm;
  std::vector<PredictionParams> predictions;  ///< one per further token
};
/// What logits are made of in a BERT: norm(gelu(dense x)). The same on all tensor ranks.
struct TransformParams {
  LinearParams dense;  ///< [h, h]
  NormParams norm;
};
/// Of the first token, whether the two parts of its sample are swapped; the same on all tensor ranks.
struct BinaryHeadParams {
  LinearParams pooler;  ///< [h, h]
  LinearParams head;    ///< [2, h]
};
struct HeadParams {
  std::optional<TransformParams> transform;
  std::optional<ParamSpec> output;       ///< [vocabulary, h]; empty: tied to the word embeddings
  std::optional<ParamSpec> output_bias;  ///< [vocabulary]
  std::optional<BinaryHeadParams> binary;
};

/// The model must be complete (config::derive): every size above 0. Throws Error otherwise.
EmbeddingParams embedding_params(const config::Model& model, const config::Parallel& parallel);
/// `layer` is the 0-based global number, those of an encoder first.
LayerParams layer_params(const config::Model& model, const config::Parallel& parallel, std::int64_t layer);
FinalParams final_params(const config::Model& model, const config::Parallel& parallel);
HeadParams head_params(const config::Model& model, const config::Parallel& parallel);
/// [buckets, heads], cut by heads: the bias of each distance, which all layers of the encoder, or of the
/// decoder, read. Empty without relative positions.
std::optional<ParamSpec> relative_bias(const config::Model& model, bool encoder);

/// Whether the tokens of `layer` see those behind them too.
bool sees_both_ways(const config::Model& model, std::int64_t layer);

/// Which layers have experts in place of their MLP; all false without --num-experts. Throws Error where
/// --moe-layer-freq cannot be read, which rules::check tells before.
std::vector<bool> layers_with_experts(const config::Model& model);

/// How many earlier tokens a token of `layer` sees; 0: all. Throws Error where --window-attn-skip-freq cannot
/// be read, which rules::check tells before.
std::int64_t window_of(const config::Model& model, std::int64_t layer);

/// Every parameter of the model once, in block order: embedding, layers, final norm, head.
std::vector<ParamSpec> model_params(const config::Model& model, const config::Parallel& parallel);

// for_each(part, f) calls f(spec) for each parameter that exists, in the order of the struct.
template <typename F>
void for_each(const AttentionParams& p, F&& f) {
  for_each(p.input_norm, f);
  for_each(p.qkv, f);
  for_each(p.q_norm, f);
  for_each(p.k_norm, f);
  for_each(p.sinks, f);
  for_each(p.proj, f);
}
template <typename F>
void for_each(const CrossAttentionParams& p, F&& f) {
  for_each(p.norm, f);
  for_each(p.q, f);
  for_each(p.kv, f);
  for_each(p.proj, f);
}
template <typename F>
void for_each(const MlpParams& p, F&& f) {
  for_each(p.norm, f);
  for_each(p.fc1, f);
  for_each(p.fc2, f);
}
template <typename F>
void for_each(const MoeParams& p, F&& f) {
  for_each(p.norm, f);
  for_each(p.router, f);
  for_each(p.router_bias, f);
  for_each(p.expert_bias, f);
  for_each(p.fc1, f);
  for_each(p.fc2, f);
  for_each(p.fc1_bias, f);
  for_each(p.fc2_bias, f);
  for_each(p.shared_fc1, f);
  for_each(p.shared_fc2, f);
  for_each(p.shared_gate, f);
}
template <typename F>
void for_each(const LayerParams& p, F&& f) {
  std::visit([&](const auto& attention) { for_each(attention, f); }, p.attention);
  for_each(p.post_attention_norm, f);
  if (p.cross) for_each(*p.cross, f);
  std::visit([&](const auto& mlp) { for_each(mlp, f); }, p.mlp);
  for_each(p.post_mlp_norm, f);
  for_each(p.final_norm, f);
}
template <typename F>
void for_each(const PredictionParams& p, F&& f) {
  for_each(p.enorm, f);
  for_each(p.hnorm, f);
  for_each(p.eh_proj, f);
  for_each(p.layer, f);
  for_each(p.final_norm, f);
}
template <typename F>
void for_each(const EmbeddingParams& p, F&& f) {
  for_each(p.word, f);
  for_each(p.position, f);
  for_each(p.type, f);
}
template <typename F>
void for_each(const FinalParams& p, F&& f) {
  for_each(p.norm, f);
  for (const PredictionParams& prediction : p.predictions) for_each(prediction, f);
}
template <typename F>
void for_each(const TransformParams& p, F&& f) {
  for_each(p.dense, f);
  for_each(p.norm, f);
}
template <typename F>
void for_each(const BinaryHeadParams& p, F&& f) {
  for_each(p.pooler, f);
  for_each(p.head, f);
}
template <typename F>
void for_each(const HeadParams& p, F&& f) {
  for_each(p.transform, f);
  for_each(p.output, f);
  for_each(p.output_bias, f);
  for_each(p.binary, f);
}

}  // namespace colonnade::layout
