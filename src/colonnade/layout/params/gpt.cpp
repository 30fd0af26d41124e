// See gpt.h.
#include "colonnade/layout/params/gpt.h"

#include <algorithm>
#include <cmath>

#include "colonnade/base/error.h"
#include "colonnade/config/stacks.h"
#include "colonnade/layout/layer_kind.h"
#include "colonnade/layout/params/builder.h"

namespace colonnade::layout {
namespace {

using config::Model;
using config::Parallel;
using Builder = ParamBuilder;

/// Name prefix of the layers before the head.
const char* stack_name(const Model& m) { return m.bidirectional ? "encoder" : "decoder"; }

AttentionParams attention_params(const Model& m, const Builder& build, const std::string& layer) {
  const std::int64_t d = m.kv_channels;
  const std::int64_t q = m.num_attention_heads * d;
  const std::int64_t kv = m.num_query_groups * d;
  const std::string name = layer + ".self_attention.";
  std::vector<DimSegment> rows{{.role = "q", .size = q, .unit = d}};
  if (m.attention_output_gate) rows.push_back({.role = "gate", .size = q, .unit = d});
  for (const char* role : {"k", "v"}) rows.push_back({.role = role, .size = kv, .unit = d});
  AttentionParams p{
      .qkv = build.column(name + "linear_qkv", rows, m.has_qkv_bias()),
      .q_norm = std::nullopt,
      .k_norm = std::nullopt,
      .sinks = std::nullopt,
      .proj = build.row(name + "linear_proj", {.size = q, .unit = d}),
  };
  if (m.qk_layernorm) {
    p.q_norm = m.qk_norm_across_heads ? build.heads_norm(name + "q_layernorm", q)
                                      : build.head_norm(name + "q_layernorm");
    p.k_norm = m.qk_norm_across_heads ? build.heads_norm(name + "k_layernorm", kv)
                                      : build.head_norm(name + "k_layernorm");
  }
  if (m.softmax_type == config::SoftmaxType::kLearnable)
    p.sinks = ParamSpec{.name = name + "core_attention.softmax_offset",
                        .shape = {m.num_attention_heads},
                        .sharded_dims = {{.dim = 0, .segments = {{.size = m.num_attention_heads}}}},
                        .init = {.std = m.hidden_init_std()},
                        .weight_decay = false};
  return p;
}

/// Row segments of fc1 for an MLP of width f. Gate and up alternate with quick-geglu, as in published
/// checkpoints.
std::vector<DimSegment> fc1_pieces(const Model& m, std::int64_t f) {
  if (!m.is_gated()) return {{.size = f}};
  if (m.activation == config::Activation::kQuickGeglu) return {{.size = 2 * f, .unit = 2}};
  return {{.role = "gate", .size = f}, {.role = "up", .size = f}};
}

MlpParams mlp_params(const Model& m, const Builder& build, const std::string& layer) {
  const std::int64_t f = m.ffn_hidden_size;
  return {.fc1 = build.column(layer + ".mlp.linear_fc1", fc1_pieces(m, f), m.add_bias_linear),
          .fc2 = build.row(layer + ".mlp.linear_fc2", {.size = f})};
}

MoeParams moe_params(const Model& m, const Builder& build, const std::string& layer) {
  const std::int64_t f = m.moe.ffn_hidden_size, shared = m.moe.shared_expert_intermediate_size;
  COL_CHECK(f > 0, "--moe-ffn-hidden-size must be set; got {}; complete the settings with config::derive", f);
  const std::string name = layer + ".mlp.";
  MoeParams p{
      .router = build.replicated(name + "router.weight", m.moe.num_experts),
      .router_bias = std::nullopt,
      .expert_bias = std::nullopt,
      .down = std::nullopt,
      .up = std::nullopt,
      .fc1 = build.experts(name + "experts.linear_fc1.weight", 1, fc1_pieces(m, f), m.hidden_init_std()),
      .fc2 = build.experts(name + "experts.linear_fc2.weight", 2, {{.size = f}}, build.output_std()),
      .fc1_bias = std::nullopt,
      .fc2_bias = std::nullopt,
      .shared_fc1 = std::nullopt,
      .shared_fc2 = std::nullopt,
      .shared_gate = std::nullopt};
  if (m.add_bias_linear) {
    p.router_bias = ParamSpec{.name = name + "router.bias",
                              .shape = {m.moe.num_experts},
                              .partial = build.partial_by_sequence(),
                              .init = {.std = m.hidden_init_std()},
                              .weight_decay = false};
    p.fc1_bias = build.expert_bias(name + "experts.linear_fc1.bias", fc1_pieces(m, f), false);
    p.fc2_bias = build.expert_bias(name + "experts.linear_fc2.bias", {{.size = m.expert_width()}}, true);
  }
  if (m.moe.routed_size > 0) {
    const std::int64_t h = m.hidden_size, l = m.moe.routed_size;
    p.down = build.token_projection(name + "fc1_latent_proj", l, h, m.hidden_init_std());
    p.up = build.token_projection(name + "fc2_latent_proj", h, l, build.output_std());
  }
  if (m.moe.router_enable_expert_bias)
    p.expert_bias = ParamSpec{.name = name + "router.expert_bias",
                              .shape = {m.moe.num_experts},
                              .init = Init::zeros(),
                              .weight_decay = false,
                              .trained = false};
  if (shared > 0) {
    p.shared_fc1 = build.column(name + "shared_experts.linear_fc1", fc1_pieces(m, shared), false);
    p.shared_fc2 = build.row(name + "shared_experts.linear_fc2", {.size = shared});
    if (m.moe.shared_expert_gate) p.shared_gate = build.replicated(name + "shared_experts.gate_weight", 1);
  }
  return p;
}

CrossAttentionParams cross_attention_params(const Model& m, const Builder& build, const std::string& layer) {
  const std::int64_t d = m.kv_channels, width = m.num_attention_heads * d;
  const std::string name = layer + ".cross_attention.";
  const DimSegment keys{.role = "k", .size = width, .unit = d}, values{.role = "v", .size = width, .unit = d};
  return {.q = build.column(name + "linear_q", {{.size = width, .unit = d}}, m.has_qkv_bias()),
          .kv = build.column(name + "linear_kv", {keys, values}, m.has_qkv_bias()),
          .proj = build.row(name + "linear_proj", {.size = width, .unit = d})};
}

void add_fused_scales(const AttentionParams& p, const Model& m, const QkClip& clip,
                      const std::vector<double>& max_scores, RowScales& scales) {
  const std::int64_t d = m.kv_channels, per_group = m.num_attention_heads / m.num_query_groups;
  std::vector<double> by_group(static_cast<std::size_t>(m.num_query_groups), 1);
  for (std::size_t head = 0; head < max_scores.size(); ++head) {
    double& scale = by_group[head / static_cast<std::size_t>(per_group)];
    scale = std::min(scale, clip.scale(max_scores[head]));
  }
  if (std::ranges::all_of(by_group, [](double scale) { return scale == 1; })) return;
  std::vector<double>& rows = scales[p.qkv.weight.name];
  for (const DimSegment& segment : p.qkv.weight.sharded_dims.front().segments)
    for (std::int64_t row = 0; row < segment.size; ++row) {
      const auto group = static_cast<std::size_t>(segment.role == "q" ? row / d / per_group : row / d);
      rows.push_back(segment.role == "q"   ? clip.of_queries(by_group[group])
                     : segment.role == "k" ? clip.of_keys(by_group[group])
                                           : 1.0);
    }
}

/// Layer of a kind with the name prefix `name`.
LayerParams named_layer(const Model& m, const Builder& build, const std::string& name,
                        const LayerKind& kind) {
  LayerParams p;
  const auto add = [&](const char* norm, MixerParams mixer, const char* post_norm) {
    SublayerParams& sublayer = p.sublayers.emplace_back(
        SublayerParams{.norm = std::nullopt, .mixers = {std::move(mixer)}, .post_norm = std::nullopt});
    if (m.input_norms) sublayer.norm = build.norm(name + norm);
    if (m.sandwich_norm && post_norm != nullptr) sublayer.post_norm = build.norm(name + post_norm);
  };
  const bool latent = kind.mixer == Mixer::kLatentAttention;
  add(".input_layernorm",
      latent ? MixerParams(latent_attention_params(build, name)) : attention_params(m, build, name),
      ".post_attention_layernorm");
  if (kind.cross_attention) add(".pre_cross_attn_layernorm", cross_attention_params(m, build, name), nullptr);
  MixerParams channel_mixer =
      kind.is_moe() ? MixerParams(moe_params(m, build, name)) : mlp_params(m, build, name);
  if (m.parallel_residual)
    p.sublayers.back().mixers.push_back(std::move(channel_mixer));
  else
    add(".pre_mlp_layernorm", std::move(channel_mixer), ".post_mlp_layernorm");
  return p;
}

}  // namespace

EmbeddingParams embedding_params(const Model& model, const Parallel& parallel) {
  const Builder build(model, parallel);
  EmbeddingParams p{.word = build.vocabulary("embedding.word_embeddings.weight", /*is_embedding=*/true),
                    .position = std::nullopt,
                    .type = std::nullopt};
  if (model.shares_word_embeddings()) p.word.held_by = HeldBy::kTiedEmbeddings;
  if (model.position_embedding == config::PositionEmbedding::kLearnedAbsolute) {
    p.position = ParamSpec{.name = "embedding.position_embeddings.weight",
                           .shape = {model.max_position_embeddings, model.hidden_size},
                           .partial = build.partial_by_sequence(),
                           .init = build.embedding_init({model.max_position_embeddings, model.hidden_size})};
  }
  if (model.num_tokentypes > 0) {
    p.type = ParamSpec{.name = "embedding.tokentype_embeddings.weight",
                       .shape = {model.num_tokentypes, model.hidden_size},
                       .partial = build.partial_by_sequence(),
                       .init = build.embedding_init({model.num_tokentypes, model.hidden_size})};
  }
  return p;
}

LayerParams layer_params(const Model& model, const Parallel& parallel, std::int64_t layer) {
  const bool encoder = layer < model.encoder_num_layers;
  const std::int64_t number = encoder ? layer : layer - model.encoder_num_layers;
  const Builder build(model, parallel, encoder ? model.encoder_num_layers : model.num_layers);
  const std::string name = fmt::format("{}.layers.{}", encoder ? "encoder" : stack_name(model), number);
  LayerParams p = named_layer(model, build, name, layer_kind(model, layer));
  if (layer + 1 == model.encoder_num_layers) p.final_norm = build.norm("encoder.final_layernorm");
  return p;
}

std::optional<ParamSpec> relative_bias(const Model& model, bool encoder) {
  if (model.position_embedding != config::PositionEmbedding::kRelative) return std::nullopt;
  const std::vector<std::int64_t> shape{model.relative_attention_num_buckets, model.num_attention_heads};
  return ParamSpec{.name = fmt::format("{}_relative_pos_emb.relative_attention_bias.weight",
                                       encoder ? "encoder" : "decoder"),
                   .shape = shape,
                   .sharded_dims = {{.dim = 1, .segments = {{.size = model.num_attention_heads}}}},
                   .init = weight_init(model, shape, model.hidden_init_std()),
                   .held_by = encoder ? HeldBy::kEncoder : HeldBy::kDecoder};
}

const ParamSpec& output_weight(const MixerParams& mixer) {
  struct {
    const ParamSpec& operator()(const AttentionParams& p) const { return p.proj.weight; }
    const ParamSpec& operator()(const LatentAttentionParams& p) const { return p.proj.weight; }
    const ParamSpec& operator()(const CrossAttentionParams& p) const { return p.proj.weight; }
    const ParamSpec& operator()(const MlpParams& p) const { return p.fc2.weight; }
    const ParamSpec& operator()(const MoeParams& p) const { return p.fc2; }
  } const weight;
  return std::visit(weight, mixer);
}

void add_qk_clip_scales(const LayerParams& layer, const Model& model, const QkClip& clip,
                        const std::vector<double>& max_scores, RowScales& scales) {
  for (const SublayerParams& sublayer : layer.sublayers)
    for (const MixerParams& mixer : sublayer.mixers) {
      if (const auto* fused = std::get_if<AttentionParams>(&mixer))
        add_fused_scales(*fused, model, clip, max_scores, scales);
      if (const auto* latent = std::get_if<LatentAttentionParams>(&mixer))
        add_qk_clip_scales(*latent, model.latent, clip, max_scores, scales);
    }
}

const char* recompute_module(const MixerParams& mixer) {
  if (std::holds_alternative<MlpParams>(mixer)) return "mlp";
  return std::holds_alternative<MoeParams>(mixer) ? "moe" : "";
}

NormParams final_norm_params(const Model& model, const Parallel& parallel) {
  return Builder(model, parallel).norm(fmt::format("{}.final_layernorm", stack_name(model)));
}

MtpLayerParams mtp_layer_params(const Model& model, const Parallel& parallel, std::int64_t depth) {
  const Builder build(model, parallel);
  const std::string name = fmt::format("mtp.layers.{}", depth);
  return {.enorm = build.norm(name + ".enorm"),
          .hnorm = build.norm(name + ".hnorm"),
          .eh_proj = build.replicated(name + ".eh_proj.weight", model.hidden_size, 2 * model.hidden_size),
          .layer = named_layer(model, build, name + ".transformer_layer",
                               layer_kind(model, model.total_layers() + depth)),
          .final_norm = build.norm(name + ".final_layernorm")};
}

HeadParams head_params(const Model& model, const Parallel& parallel) {
  const Builder build(model, parallel);
  HeadParams p{
      .transform = std::nullopt, .output = std::nullopt, .output_bias = std::nullopt, .binary = std::nullopt};
  if (model.lm_head_transform)
    p.transform = TransformParams{
        .dense = build.replicated_linear("lm_head.dense", model.hidden_size, /*by_sequence=*/true),
        .norm = build.norm("lm_head.layer_norm")};
  if (model.bert_binary_head)
    p.binary = BinaryHeadParams{
        .pooler = build.replicated_linear("pooler.dense", model.hidden_size, /*by_sequence=*/false),
        .head = build.replicated_linear("binary_head", 2, /*by_sequence=*/false)};
  const std::string output = config::has_several_stacks(model) ? "lm_head.output_layer" : "output_layer";
  if (model.untie_embeddings_and_output_weights)
    p.output = build.vocabulary(output + ".weight", /*is_embedding=*/false);
  if (model.output_layer_bias.value_or(false)) p.output_bias = build.vocabulary_bias(output + ".bias");
  return p;
}

void for_each_param(const Model& model, const Parallel& parallel, const BlockId& block,
                    const std::function<void(const ParamSpec&)>& f) {
  switch (block.kind) {
    case BlockKind::kEmbedding:
      return for_each(embedding_params(model, parallel), f);
    case BlockKind::kLayer:
      return for_each(layer_params(model, parallel, block.index), f);
    case BlockKind::kFinalNorm:
      return for_each(final_norm_params(model, parallel), f);
    case BlockKind::kMtpLayer:
      return for_each(mtp_layer_params(model, parallel, block.index), f);
    case BlockKind::kHead:
      return for_each(head_params(model, parallel), f);
  }
}

std::vector<ParamSpec> model_params(const Model& model, const Parallel& parallel) {
  std::vector<ParamSpec> all;
  const auto add = [&all](const ParamSpec& spec) { all.push_back(spec); };
  for (const BlockId& block : model_blocks(model)) {
    const bool begins_stack = block.index == 0 || block.index == model.encoder_num_layers;
    if (block.kind == BlockKind::kLayer && begins_stack)
      for_each(relative_bias(model, block.index < model.encoder_num_layers), add);
    for_each_param(model, parallel, block, add);
  }
  return all;
}

}  // namespace colonnade::layout
