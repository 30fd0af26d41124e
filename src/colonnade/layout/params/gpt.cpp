// See gpt.h.
#include "colonnade/layout/params/gpt.h"

#include <algorithm>
#include <cmath>

#include "colonnade/base/error.h"
#include "colonnade/config/layer_pattern.h"
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
  AttentionParams p{
      .input_norm = build.norm(layer + ".input_layernorm"),
      .qkv = build.column(name + "linear_qkv",
                          {{.role = "q", .size = q, .unit = d},
                           {.role = "k", .size = kv, .unit = d},
                           {.role = "v", .size = kv, .unit = d}},
                          m.has_qkv_bias()),
      .q_norm = std::nullopt,
      .k_norm = std::nullopt,
      .sinks = std::nullopt,
      .proj = build.row(name + "linear_proj", {.size = q, .unit = d}),
  };
  if (m.qk_layernorm) {
    p.q_norm = build.head_norm(name + "q_layernorm");
    p.k_norm = build.head_norm(name + "k_layernorm");
  }
  if (m.softmax_type == config::SoftmaxType::kLearnable)
    p.sinks = ParamSpec{.name = name + "core_attention.softmax_offset",
                        .shape = {m.num_attention_heads},
                        .sharded_dims = {{.dim = 0, .segments = {{.size = m.num_attention_heads}}}},
                        .init = {.std = m.init_method_std},
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
  return {.norm = build.norm(layer + ".pre_mlp_layernorm"),
          .fc1 = build.column(layer + ".mlp.linear_fc1", fc1_pieces(m, f), m.add_bias_linear),
          .fc2 = build.row(layer + ".mlp.linear_fc2", {.size = f})};
}

MoeParams moe_params(const Model& m, const Builder& build, const std::string& layer) {
  const std::int64_t f = m.moe.ffn_hidden_size, shared = m.moe.shared_expert_intermediate_size;
  COL_CHECK(f > 0, "--moe-ffn-hidden-size must be set; got {}; complete the settings with config::derive", f);
  const std::string name = layer + ".mlp.";
  MoeParams p{
      .norm = build.norm(layer + ".pre_mlp_layernorm"),
      .router = build.replicated(name + "router.weight", m.moe.num_experts),
      .router_bias = std::nullopt,
      .expert_bias = std::nullopt,
      .fc1 = build.experts(name + "experts.linear_fc1.weight", 1, fc1_pieces(m, f), m.init_method_std),
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
                              .init = {.std = m.init_method_std},
                              .weight_decay = false};
    p.fc1_bias = build.expert_bias(name + "experts.linear_fc1.bias", fc1_pieces(m, f), false);
    p.fc2_bias = build.expert_bias(name + "experts.linear_fc2.bias", {{.size = m.hidden_size}}, true);
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
  return {.norm = build.norm(layer + ".pre_cross_attn_layernorm"),
          .q = build.column(name + "linear_q", {{.size = width, .unit = d}}, m.has_qkv_bias()),
          .kv = build.column(name + "linear_kv", {keys, values}, m.has_qkv_bias()),
          .proj = build.row(name + "linear_proj", {.size = width, .unit = d})};
}

/// Layer with the name prefix `name`, dense or MoE.
LayerParams named_layer(const Model& m, const Builder& build, const std::string& name, bool experts) {
  LayerParams p;
  if (m.latent.enabled)
    p.attention = latent_attention_params(build, name);
  else
    p.attention = attention_params(m, build, name);
  if (experts)
    p.mlp = moe_params(m, build, name);
  else
    p.mlp = mlp_params(m, build, name);
  if (m.sandwich_norm) {
    p.post_attention_norm = build.norm(name + ".post_attention_layernorm");
    p.post_mlp_norm = build.norm(name + ".post_mlp_layernorm");
  }
  return p;
}

/// MTP layers are MoE if the last layer is.
MtpLayerParams mtp_params(const Model& m, const Builder& build, std::int64_t depth) {
  const std::string name = fmt::format("mtp.layers.{}", depth);
  return {.enorm = build.norm(name + ".enorm"),
          .hnorm = build.norm(name + ".hnorm"),
          .eh_proj = build.replicated(name + ".eh_proj.weight", m.hidden_size, 2 * m.hidden_size),
          .layer = named_layer(m, build, name + ".transformer_layer", layers_with_experts(m).back()),
          .final_norm = build.norm(name + ".final_layernorm")};
}

}  // namespace

std::int64_t attention_window(const Model& model, std::int64_t layer) {
  if (model.window_size == 0 || model.window_attn_skip_freq.empty()) return model.window_size;
  const auto kinds = config::expand_skip_freq(model.window_attn_skip_freq, model.num_layers);
  COL_CHECK(kinds, "--window-attn-skip-freq must be valid for {} layers; got {}", model.num_layers,
            model.window_attn_skip_freq);
  return (*kinds)[static_cast<std::size_t>(std::min(layer, model.num_layers - 1))] ? model.window_size : 0;
}

bool is_bidirectional(const Model& model, std::int64_t layer) {
  return model.bidirectional || layer < model.encoder_num_layers;
}

std::vector<bool> layers_with_experts(const Model& model) {
  if (model.moe.num_experts == 0) return std::vector<bool>(static_cast<std::size_t>(model.total_layers()));
  auto kinds = config::expand_layer_freq(model.moe.layer_freq, model.num_layers);
  COL_CHECK(kinds, "--moe-layer-freq must be valid for {} layers; got {}", model.num_layers,
            model.moe.layer_freq);
  return *std::move(kinds);
}

EmbeddingParams embedding_params(const Model& model, const Parallel& parallel) {
  const Builder build(model, parallel);
  EmbeddingParams p{.word = build.vocabulary("embedding.word_embeddings.weight", build.embedding_std()),
                    .position = std::nullopt,
                    .type = std::nullopt};
  if (model.shares_word_embeddings()) p.word.held_by = HeldBy::kTiedEmbeddings;
  if (model.position_embedding == config::PositionEmbedding::kLearnedAbsolute) {
    p.position = ParamSpec{.name = "embedding.position_embeddings.weight",
                           .shape = {model.max_position_embeddings, model.hidden_size},
                           .partial = build.partial_by_sequence(),
                           .init = {.std = build.embedding_std()}};
  }
  if (model.num_tokentypes > 0) {
    p.type = ParamSpec{.name = "embedding.tokentype_embeddings.weight",
                       .shape = {model.num_tokentypes, model.hidden_size},
                       .partial = build.partial_by_sequence(),
                       .init = {.std = build.embedding_std()}};
  }
  return p;
}

LayerParams layer_params(const Model& model, const Parallel& parallel, std::int64_t layer) {
  const bool encoder = layer < model.encoder_num_layers;
  const std::int64_t number = encoder ? layer : layer - model.encoder_num_layers;
  const Builder build(model, parallel, encoder ? model.encoder_num_layers : model.num_layers);
  const std::string name = fmt::format("{}.layers.{}", encoder ? "encoder" : stack_name(model), number);
  LayerParams p =
      named_layer(model, build, name, layers_with_experts(model)[static_cast<std::size_t>(layer)]);
  if (!model.has_encoder()) return p;
  if (!encoder) p.cross = cross_attention_params(model, build, name);
  if (layer + 1 == model.encoder_num_layers) p.final_norm = build.norm("encoder.final_layernorm");
  return p;
}

std::optional<ParamSpec> relative_bias(const Model& model, bool encoder) {
  if (model.position_embedding != config::PositionEmbedding::kRelative) return std::nullopt;
  return ParamSpec{.name = fmt::format("{}_relative_pos_emb.relative_attention_bias.weight",
                                       encoder ? "encoder" : "decoder"),
                   .shape = {model.relative_attention_num_buckets, model.num_attention_heads},
                   .sharded_dims = {{.dim = 1, .segments = {{.size = model.num_attention_heads}}}},
                   .init = {.std = model.init_method_std},
                   .held_by = encoder ? HeldBy::kEncoder : HeldBy::kDecoder};
}

FinalParams final_params(const Model& model, const Parallel& parallel) {
  const Builder build(model, parallel);
  FinalParams p{.norm = build.norm(fmt::format("{}.final_layernorm", stack_name(model))), .mtp_layers = {}};
  for (std::int64_t depth = 0; depth < model.mtp_num_layers; ++depth)
    p.mtp_layers.push_back(mtp_params(model, build, depth));
  return p;
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
  const std::string output = model.has_encoder() ? "lm_head.output_layer" : "output_layer";
  if (model.untie_embeddings_and_output_weights)
    p.output = build.vocabulary(output + ".weight", model.init_method_std);
  if (model.output_layer_bias.value_or(false)) p.output_bias = build.vocabulary_bias(output + ".bias");
  return p;
}

std::vector<ParamSpec> model_params(const Model& model, const Parallel& parallel) {
  std::vector<ParamSpec> all;
  const auto add = [&all](const ParamSpec& spec) { all.push_back(spec); };
  for_each(embedding_params(model, parallel), add);
  for (std::int64_t layer = 0; layer < model.total_layers(); ++layer) {
    if (layer == 0 || layer == model.encoder_num_layers)
      for_each(relative_bias(model, layer < model.encoder_num_layers), add);
    for_each(layer_params(model, parallel, layer), add);
  }
  for_each(final_params(model, parallel), add);
  for_each(head_params(model, parallel), add);
  return all;
}

}  // namespace colonnade::layout
