// Parameters of GPT, BERT and T5 models, one function per module: names, shapes, sharding, initialization.
// Layers are built from these structs; checkpoints, converters and the memory plan use the same ones. Names
// are Megatron's global names with layer numbers: "decoder.layers.3.mlp.linear_fc1.weight". Source:
// Megatron's core/models/{gpt,bert,T5}, core/transformer/{attention,mlp}.py; Shoeybi et al. 2019.
//
// Sharded over tp: qkv and fc1 by rows with their biases; proj and fc2 by columns; word embeddings and output
// layer by vocabulary rows, padded to a multiple of make_vocab_size_divisible_by * tp. Replicated over tp:
// norms, position embeddings, biases of proj and fc2.
//
// Gradients partial over tp (each rank sees a shard of the sequence, or of the heads):
//   with sequence parallelism   norms, row-parallel biases, position embeddings, routers
//   always                      q and k norms: every rank normalizes its own heads
// The experts of a layer are one parameter, sharded by experts over ep and within each expert over etp.
// Biases of the second expert GEMM are replicated over etp: one rank adds the bias, all of them have the full
// gradient.
//
// A key or value head that several ranks replicate (tp > query groups) has several holders in layout::shard;
// its gradient is summed over them.
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
  LinearParams qkv;  ///< rows [all q heads | all k groups | all v groups], sharded by heads
  std::optional<NormParams> q_norm, k_norm;
  std::optional<ParamSpec> sinks;  ///< [heads], attention sink logit of each head
  LinearParams proj;
};
/// Cross-attention of decoder tokens to encoder outputs; as many query groups as heads.
struct CrossAttentionParams {
  NormParams norm;
  LinearParams q;   ///< rows [heads]
  LinearParams kv;  ///< rows [all k heads | all v heads]
  LinearParams proj;
};
struct MlpParams {
  NormParams norm;
  LinearParams fc1;  ///< rows [gate | up] if gated; interleaved with --quick-geglu
  LinearParams fc2;
};
/// MoE layer instead of an MLP: routed experts and shared experts.
struct MoeParams {
  NormParams norm;
  ParamSpec router;                      ///< [experts, h]
  std::optional<ParamSpec> router_bias;  ///< [experts]
  std::optional<ParamSpec> expert_bias;  ///< [experts], updated once per step, not trained
  ParamSpec fc1;                         ///< [experts, gate and up, h]
  ParamSpec fc2;                         ///< [experts, h, ffn]
  std::optional<ParamSpec> fc1_bias;     ///< [experts, gate and up]
  std::optional<ParamSpec> fc2_bias;     ///< [experts, h], replicated over etp
  std::optional<LinearParams> shared_fc1, shared_fc2;
  std::optional<ParamSpec> shared_gate;  ///< [1, h]
};
struct LayerParams {
  std::variant<AttentionParams, LatentAttentionParams> attention;
  std::optional<NormParams> post_attention_norm;  ///< norm of the attention output
  std::optional<CrossAttentionParams> cross;      ///< decoder layers of encoder-decoder models
  std::variant<MlpParams, MoeParams> mlp;
  std::optional<NormParams> post_mlp_norm;  ///< norm of the MLP output
  std::optional<NormParams> final_norm;     ///< after the last encoder layer
};
/// Multi-token prediction (MTP) layer: x = W [norm(embedding) | norm(hidden)], then a transformer layer.
struct MtpLayerParams {
  NormParams enorm, hnorm;
  ParamSpec eh_proj;  ///< [h, 2 h], replicated over tp
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
  std::vector<MtpLayerParams> mtp_layers;  ///< one per MTP layer
};
/// BERT's LM head transform before the output layer: norm(gelu(dense x)). Replicated over tp.
struct TransformParams {
  LinearParams dense;  ///< [h, h]
  NormParams norm;
};
/// BERT's binary head: whether the two segments of the sample are swapped, from the first token. Replicated
/// over tp.
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

/// Embedding parameters. The model must be complete (config::derive), with every size above 0; throws Error
/// otherwise.
EmbeddingParams embedding_params(const config::Model& model, const config::Parallel& parallel);
/// Parameters of a layer; `layer` is the 0-based global number, encoder layers first.
LayerParams layer_params(const config::Model& model, const config::Parallel& parallel, std::int64_t layer);
FinalParams final_params(const config::Model& model, const config::Parallel& parallel);
HeadParams head_params(const config::Model& model, const config::Parallel& parallel);
/// Relative position bias [buckets, heads], sharded by heads and shared by all encoder layers or by all
/// decoder layers. Empty without relative positions.
std::optional<ParamSpec> relative_bias(const config::Model& model, bool encoder);

/// Whether `layer` has bidirectional attention.
bool is_bidirectional(const config::Model& model, std::int64_t layer);

/// Whether each layer is an MoE layer; all false without --num-experts. Throws Error for an invalid
/// --moe-layer-freq, which rules::check reports before.
std::vector<bool> layers_with_experts(const config::Model& model);

/// Sliding window of `layer` in earlier tokens; 0: no window. Throws Error for an invalid
/// --window-attn-skip-freq, which rules::check reports before.
std::int64_t attention_window(const config::Model& model, std::int64_t layer);

/// All parameters of the model, in block order: embedding, layers, final norm, head.
std::vector<ParamSpec> model_params(const config::Model& model, const config::Parallel& parallel);

// for_each(params, f) calls f(spec) for each existing parameter, in the order of the struct.
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
void for_each(const MtpLayerParams& p, F&& f) {
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
  for (const MtpLayerParams& prediction : p.mtp_layers) for_each(prediction, f);
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
