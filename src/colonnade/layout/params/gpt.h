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
#include <functional>
#include <optional>
#include <variant>
#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/config/parallel.h"
#include "colonnade/layout/blocks.h"
#include "colonnade/layout/layer_kind.h"
#include "colonnade/layout/param.h"
#include "colonnade/layout/params/latent_attention.h"
#include "colonnade/layout/params/parts.h"
#include "colonnade/layout/qk_clip.h"

namespace colonnade::layout {

struct AttentionParams {
  /// Rows [all q heads | all k groups | all v groups], sharded by heads; with an output gate as many gate
  /// heads follow the q heads.
  LinearParams qkv;
  std::optional<NormParams> q_norm, k_norm;
  std::optional<ParamSpec> sinks;  ///< [heads], attention sink logit of each head
  LinearParams proj;
};
/// Cross-attention of decoder tokens to encoder outputs; as many query groups as heads.
struct CrossAttentionParams {
  LinearParams q;   ///< rows [heads]
  LinearParams kv;  ///< rows [all k heads | all v heads]
  LinearParams proj;
};
struct MlpParams {
  LinearParams fc1;  ///< rows [gate | up] if gated; interleaved with --quick-geglu
  LinearParams fc2;
};
/// MoE layer instead of an MLP: routed experts and shared experts. The projections around latent experts are
/// replicated over tp.
struct MoeParams {
  ParamSpec router;                      ///< [experts, h]
  std::optional<ParamSpec> router_bias;  ///< [experts]
  std::optional<ParamSpec> expert_bias;  ///< [experts], updated once per step, not trained
  std::optional<LinearParams> down, up;  ///< [l, h], [h, l] with --moe-latent-size l, else l = h below
  ParamSpec fc1;                         ///< [experts, gate and up, l]
  ParamSpec fc2;                         ///< [experts, l, ffn]
  std::optional<ParamSpec> fc1_bias;     ///< [experts, gate and up]
  std::optional<ParamSpec> fc2_bias;     ///< [experts, l], replicated over etp
  std::optional<LinearParams> shared_fc1, shared_fc2;
  std::optional<ParamSpec> shared_gate;  ///< [1, h]
};
using MixerParams =
    std::variant<AttentionParams, LatentAttentionParams, CrossAttentionParams, MlpParams, MoeParams>;
/// y = x + drop(post_norm(sum over mixers of mixer(norm(x)))).
struct SublayerParams {
  std::optional<NormParams> norm;  ///< empty with --no-input-norms
  std::vector<MixerParams> mixers;
  std::optional<NormParams> post_norm;  ///< with sandwich norms
};
struct LayerParams {
  std::vector<SublayerParams> sublayers;  ///< mixer, cross-attention if any, channel mixer (LayerKind);
                                          ///< mixer and channel mixer in one with --parallel-residual
  std::optional<NormParams> final_norm;   ///< after the last encoder layer
};
/// Weight of the mixer's output projection; its name keys the dropout after the mixer.
const ParamSpec& output_weight(const MixerParams& mixer);
/// Name in --recompute-modules for the recomputation of the whole mixer; empty: there is none.
const char* recompute_module(const MixerParams& mixer);
/// The parameters of the layer's only mixer of this type.
template <typename Params>
const Params& mixer_of(const LayerParams& layer) {
  for (const SublayerParams& sublayer : layer.sublayers)
    for (const MixerParams& mixer : sublayer.mixers)
      if (const auto* params = std::get_if<Params>(&mixer)) return *params;
  throw std::bad_variant_access();
}
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
/// Adds the row scales of self-attention in `layer` for the largest score of each of its heads; nothing if no
/// score exceeds the threshold. The heads of a query group share the key, so the largest of their scores
/// scales all of them. Values, gates and biases are not scaled, as in Megatron.
void add_qk_clip_scales(const LayerParams& layer, const config::Model& model, const QkClip& clip,
                        const std::vector<double>& max_scores, RowScales& scales);
NormParams final_norm_params(const config::Model& model, const config::Parallel& parallel);
/// Parameters of the MTP layer `depth`, 0-based. Its transformer layer has the kind of the last layer.
MtpLayerParams mtp_layer_params(const config::Model& model, const config::Parallel& parallel,
                                std::int64_t depth);
HeadParams head_params(const config::Model& model, const config::Parallel& parallel);
/// Relative position bias [buckets, heads], sharded by heads and shared by all encoder layers or by all
/// decoder layers. Empty without relative positions.
std::optional<ParamSpec> relative_bias(const config::Model& model, bool encoder);

/// Calls f(spec) for every parameter of `block`, in the order of its for_each, without shared parameters of
/// several layers (relative_bias).
void for_each_param(const config::Model& model, const config::Parallel& parallel, const BlockId& block,
                    const std::function<void(const ParamSpec&)>& f);

/// All parameters of the model, in the order of model_blocks().
std::vector<ParamSpec> model_params(const config::Model& model, const config::Parallel& parallel);

// for_each(params, f) calls f(spec) for each existing parameter, in the order of the struct.
template <typename F>
void for_each(const AttentionParams& p, F&& f) {
  for_each(p.qkv, f);
  for_each(p.q_norm, f);
  for_each(p.k_norm, f);
  for_each(p.sinks, f);
  for_each(p.proj, f);
}
template <typename F>
void for_each(const CrossAttentionParams& p, F&& f) {
  for_each(p.q, f);
  for_each(p.kv, f);
  for_each(p.proj, f);
}
template <typename F>
void for_each(const MlpParams& p, F&& f) {
  for_each(p.fc1, f);
  for_each(p.fc2, f);
}
template <typename F>
void for_each(const MoeParams& p, F&& f) {
  for_each(p.router, f);
  for_each(p.router_bias, f);
  for_each(p.expert_bias, f);
  for_each(p.down, f);
  for_each(p.fc1, f);
  for_each(p.fc2, f);
  for_each(p.fc1_bias, f);
  for_each(p.fc2_bias, f);
  for_each(p.up, f);
  for_each(p.shared_fc1, f);
  for_each(p.shared_fc2, f);
  for_each(p.shared_gate, f);
}
template <typename F>
void for_each(const SublayerParams& p, F&& f) {
  for_each(p.norm, f);
  for (const MixerParams& mixer : p.mixers)
    std::visit([&](const auto& params) { for_each(params, f); }, mixer);
  for_each(p.post_norm, f);
}
template <typename F>
void for_each(const LayerParams& p, F&& f) {
  for (const SublayerParams& sublayer : p.sublayers) for_each(sublayer, f);
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
