// The parameters of a GPT-class model, one function per part: names, shapes, cuts, start. Layers are
// built from these structs; checkpoints, converters and the memory plan read the same ones.
// Names are Megatron's global names with layer numbers: "decoder.layers.3.mlp.linear_fc1.weight".
// Source: Megatron's core/models/gpt, core/transformer/{attention,mlp}.py; Shoeybi et al. 2019.
//
// Cut over tp: qkv and fc1 by rows, with their biases; proj and fc2 by columns, their biases whole;
// word embeddings and output layer by rows of the vocabulary, filled up to a multiple of
// make_vocab_size_divisible_by * tp. Norms and position embeddings are whole.
//
// Gradients partial over tp (each rank sees a part of the sequence, or of the heads):
//   with sequence parallelism   norms, row-parallel biases, position embeddings
//   always                      q and k norms: every rank normalises its own heads
//   of a router                 with sequence parallelism: every rank routes its part of the sequence
// Experts of a layer are one parameter, cut by experts over ep and inside each expert over etp.
//
// A key or value head that several ranks hold (tp > query groups) is a run with several holders in
// plan::shard; its gradient is summed over them.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/config/parallel.h"
#include "colonnade/plan/param.h"

namespace colonnade::plan {

struct NormParams {
  ParamSpec weight;               ///< [h], or [d] for q and k norms
  std::optional<ParamSpec> bias;  ///< LayerNorm only
};
struct LinearParams {
  ParamSpec weight;  ///< [out, in]
  std::optional<ParamSpec> bias;
};
struct AttentionParams {
  NormParams input_norm;
  LinearParams qkv;  ///< rows [all q heads | all k groups | all v groups], cut by heads
  std::optional<NormParams> q_norm, k_norm;
  LinearParams proj;
};
struct MlpParams {
  NormParams norm;
  LinearParams fc1;  ///< rows [gate | up] when gated
  LinearParams fc2;
};
/// In place of an MLP: experts, and shared ones that every token passes.
struct MoeParams {
  NormParams norm;
  ParamSpec router;                      ///< [experts, h]
  std::optional<ParamSpec> expert_bias;  ///< [experts], moved once a step, not trained
  ParamSpec fc1;                         ///< [experts, gate and up, h]
  ParamSpec fc2;                         ///< [experts, h, ffn]
  std::optional<LinearParams> shared_fc1, shared_fc2;
  std::optional<ParamSpec> shared_gate;  ///< [1, h]
};
struct LayerParams {
  AttentionParams attention;
  std::variant<MlpParams, MoeParams> mlp;
};
struct EmbeddingParams {
  ParamSpec word;                     ///< [vocabulary, h]
  std::optional<ParamSpec> position;  ///< [max positions, h], learned positions only
};
struct HeadParams {
  NormParams final_norm;
  std::optional<ParamSpec> output;  ///< [vocabulary, h]; empty: tied to the word embeddings
};

/// The model must be complete (config::derive): every size above 0. Throws Error otherwise.
EmbeddingParams embedding_params(const config::Model& model, const config::Parallel& parallel);
/// `layer` is the 0-based global number.
LayerParams layer_params(const config::Model& model, const config::Parallel& parallel, std::int64_t layer);
HeadParams head_params(const config::Model& model, const config::Parallel& parallel);

/// Which layers have experts in place of their MLP; all false without --num-experts. Throws Error where
/// --moe-layer-freq cannot be read, which plan::check tells before.
std::vector<bool> layers_with_experts(const config::Model& model);

/// Every parameter of the model once, in block order: embedding, layers, head.
std::vector<ParamSpec> gpt_params(const config::Model& model, const config::Parallel& parallel);

/// Calls f(spec) for each parameter that exists, in the order of the struct.
template <typename F>
void for_each(const ParamSpec& spec, F&& f) {
  f(spec);
}
template <typename T, typename F>
void for_each(const std::optional<T>& part, F&& f) {
  if (part) for_each(*part, f);
}
template <typename F>
void for_each(const NormParams& p, F&& f) {
  for_each(p.weight, f);
  for_each(p.bias, f);
}
template <typename F>
void for_each(const LinearParams& p, F&& f) {
  for_each(p.weight, f);
  for_each(p.bias, f);
}
template <typename F>
void for_each(const AttentionParams& p, F&& f) {
  for_each(p.input_norm, f);
  for_each(p.qkv, f);
  for_each(p.q_norm, f);
  for_each(p.k_norm, f);
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
  for_each(p.expert_bias, f);
  for_each(p.fc1, f);
  for_each(p.fc2, f);
  for_each(p.shared_fc1, f);
  for_each(p.shared_fc2, f);
  for_each(p.shared_gate, f);
}
template <typename F>
void for_each(const LayerParams& p, F&& f) {
  for_each(p.attention, f);
  std::visit([&](const auto& mlp) { for_each(mlp, f); }, p.mlp);
}
template <typename F>
void for_each(const EmbeddingParams& p, F&& f) {
  for_each(p.word, f);
  for_each(p.position, f);
}
template <typename F>
void for_each(const HeadParams& p, F&& f) {
  for_each(p.final_norm, f);
  for_each(p.output, f);
}

}  // namespace colonnade::plan
