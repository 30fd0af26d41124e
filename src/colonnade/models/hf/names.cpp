// See names.h.
#include "colonnade/models/hf/names.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <set>
#include <string_view>

#include "colonnade/base/error.h"
#include "colonnade/config/stacks.h"
#include "colonnade/layout/layer_kind.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/models/hf/tables.h"

namespace colonnade::models::hf {
namespace {

/// "decoder.layers.12.mlp..." -> ("decoder.layers.{}.mlp...", "12"); MTP layers are
/// numbered after the `layers` of the model.
std::pair<std::string, std::string> without_number(const std::string& name, std::int64_t layers) {
  for (const std::string_view prefix : {"decoder.layers.", "encoder.layers.", "mtp.layers."}) {
    if (!name.starts_with(prefix)) continue;
    const auto dot = name.find('.', prefix.size());
    const auto number = std::stoll(name.substr(prefix.size(), dot - prefix.size()));
    const bool mtp = prefix.front() == 'm';
    return {std::string(prefix) + "{}" + name.substr(dot), std::to_string(number + (mtp ? layers : 0))};
  }
  return {name, ""};
}

/// `pattern` with `numbers` in place of its {}, in order.
std::string with_numbers(std::string_view pattern, std::initializer_list<std::string> numbers) {
  std::string name(pattern);
  for (const std::string& number : numbers) {
    const auto at = name.find("{}");
    if (at != std::string::npos) name.replace(at, 2, number);
  }
  return name;
}

/// Rows of dimension `dim` per tensor: those of each fused segment, or all for a single tensor.
std::vector<std::int64_t> rows_of(const layout::ParamSpec& spec, std::size_t dim, std::size_t tensors) {
  if (tensors == 1) return {dim < spec.shape.size() ? spec.shape[dim] : 1};
  const auto sharded = std::ranges::find(spec.sharded_dims, static_cast<int>(dim), &layout::ShardedDim::dim);
  COL_CHECK(sharded != spec.sharded_dims.end() && sharded->segments.size() == tensors,
            "{}: its segments must match the {} tensors of the name table; got another number", spec.name,
            tensors);
  std::vector<std::int64_t> rows;
  for (const layout::DimSegment& segment : sharded->segments) rows.push_back(segment.size);
  return rows;
}

/// Whether the model has features that only T5 or BERT have, or no family.
bool has_unshared_parts(const config::Model& m) {
  return config::has_several_stacks(m) || m.output_layer_bias.value_or(false) || m.scale_decoder_outputs ||
         m.bidirectional || m.num_tokentypes > 0 || m.apply_residual_connection_post_layernorm ||
         m.parallel_residual;
}

/// Whether the rotary embedding covers full heads with frequencies that config.json can express.
bool has_rotary_heads(const config::Model& m) {
  if (!m.has_rotary() || m.rotary_percent != 1.0 || m.rotary_interleaved) return false;
  if (m.uses_yarn())
    return !m.use_rope_scaling && m.rotary_seq_len_interpolation_factor == 1.0 &&
           ((m.mscale == 1 && m.mscale_all_dim == 0) || (m.mscale != 0 && m.mscale_all_dim != 0));
  return !m.use_rope_scaling || m.rotary_seq_len_interpolation_factor == 1.0;
}

/// Whether all layers have the same plain attention, with scores over sqrt(head size).
bool has_plain_layers(const config::Model& m) {
  return m.softmax_type == config::SoftmaxType::kVanilla && m.attn_logit_softcapping == 0 &&
         !m.query_pre_attn_scalar && m.window_attn_skip_freq.empty() && !m.rotary_base_local &&
         !m.parallel_residual && !m.sandwich_norm && !m.scale_embeddings && !m.apply_layernorm_1p;
}

/// Whether the layers are Llama's, up to QKV biases, QK norms, windows and experts.
bool has_llama_layers(const config::Model& m) {
  return !m.latent.enabled && m.mtp_num_layers == 0 && has_plain_layers(m) && has_rotary_heads(m) &&
         m.normalization == config::Normalization::kRmsNorm && m.activation == config::Activation::kSwiglu &&
         !m.add_bias_linear;
}

bool has_experts_everywhere(const config::Model& m) {
  return std::ranges::count(layout::layer_kinds(m), false, &layout::LayerKind::is_moe) == 0;
}

bool has_plain_router(const config::Moe& moe) {
  return !moe.uses_sinkhorn() && moe.routed_size == 0 &&
         moe.router_score_function == config::RouterScore::kSoftmax && moe.router_num_groups == 0 &&
         moe.router_topk_scaling_factor.value_or(1) == 1 && !moe.router_enable_expert_bias &&
         moe.shared_expert_intermediate_size == 0;
}

bool is_gpt_oss(const config::Model& m) {
  return !m.latent.enabled && m.mtp_num_layers == 0 && has_rotary_heads(m) &&
         m.normalization == config::Normalization::kRmsNorm && !m.apply_layernorm_1p &&
         m.activation == config::Activation::kQuickGeglu && m.glu_linear_offset == 1 &&
         m.activation_func_clamp_value && m.add_bias_linear && !m.qk_layernorm &&
         m.softmax_type == config::SoftmaxType::kLearnable && m.attn_logit_softcapping == 0 &&
         !m.query_pre_attn_scalar && !m.rotary_base_local && !m.sandwich_norm && !m.scale_embeddings &&
         m.moe.num_experts > 0 && has_experts_everywhere(m) && has_plain_router(m.moe) &&
         !m.moe.router_pre_softmax;
}

/// Transformers stores query_pre_attn_scalar as an integer.
bool has_whole_scalar(const config::Model& m) {
  return !m.query_pre_attn_scalar || std::floor(*m.query_pre_attn_scalar) == *m.query_pre_attn_scalar;
}

/// LlamaConfig and Gemma's require hidden_size % num_attention_heads == 0, whatever head_dim is.
bool has_whole_heads(const config::Model& m) {
  return m.num_attention_heads > 0 && m.hidden_size % m.num_attention_heads == 0;
}

/// Gemma 3's class rounds YaRN's correction range to integers, whatever config.json says.
bool has_gemma3_positions(const config::Model& m) {
  const bool rounds = !m.uses_yarn() || m.yarn_correction_range_round_to_int;
  return rounds && (m.rotary_base_local || m.window_size == 0);
}

std::optional<Family> gemma_family(const config::Model& m) {
  const bool gemma = !m.latent.enabled && m.mtp_num_layers == 0 && has_rotary_heads(m) &&
                     m.normalization == config::Normalization::kRmsNorm && m.apply_layernorm_1p &&
                     m.activation == config::Activation::kGegluTanh && !m.add_bias_linear &&
                     !m.add_qkv_bias && m.sandwich_norm && m.scale_embeddings && m.query_pre_attn_scalar &&
                     m.softmax_type == config::SoftmaxType::kVanilla && m.moe.num_experts == 0 &&
                     has_whole_scalar(m) && has_whole_heads(m);
  if (gemma && !m.qk_layernorm && !m.rotary_base_local) return Family::kGemma2;
  if (gemma && m.qk_layernorm && has_gemma3_positions(m) && m.attn_logit_softcapping == 0)
    return Family::kGemma3;
  return std::nullopt;
}

std::optional<Family> dense_family(const config::Model& m) {
  const bool window = m.window_size > 0;
  if (m.qk_layernorm) return m.add_qkv_bias || window ? std::nullopt : std::optional(Family::kQwen3);
  if (m.add_qkv_bias) return window ? std::nullopt : std::optional(Family::kQwen2);
  return window || !has_whole_heads(m) ? Family::kMistral : Family::kLlama;
}

std::optional<Family> expert_family(const config::Model& m) {
  const config::Moe& moe = m.moe;
  if (!has_plain_router(moe) || m.add_qkv_bias) return std::nullopt;
  if (m.qk_layernorm) return m.window_size > 0 ? std::nullopt : std::optional(Family::kQwen3Moe);
  return has_experts_everywhere(m) && !moe.router_pre_softmax ? std::optional(Family::kMixtral)
                                                              : std::nullopt;
}

/// Whether expert groups are ranked by the sum of their top two scores, as DeepSeek-V3 always does.
bool groups_of_two(const config::Moe& moe) {
  if (moe.router_num_groups <= 1) return true;
  const std::int64_t best = moe.router_group_best > 0
                                ? moe.router_group_best
                                : moe.router_topk / std::max<std::int64_t>(moe.router_group_topk, 1);
  return best == 2;
}

/// Whether rotary positions are DeepSeek-V3's. Transformers ignores mscale without mscale_all_dim and scales
/// no scores of plain rotary embedding.
bool has_deepseek_positions(const config::Model& m) {
  const bool no_position_table = m.position_embedding != config::PositionEmbedding::kLearnedAbsolute &&
                                 m.position_embedding != config::PositionEmbedding::kRelative;
  if (!no_position_table || m.rotary_channels() != m.latent.qk_pos_emb_head_dim) return false;
  if (m.rotary_scaling_factor <= 1) return true;
  if (!m.uses_yarn()) return m.mscale_all_dim == 0;
  return m.mscale_all_dim > 0 ? m.mscale > 0 : m.mscale == 1;
}

/// DeepSeek-V3's latent norms have this epsilon whatever config.json says.
constexpr double kDeepseekEpsilon = 1e-6;

bool has_deepseek_v3_layers(const config::Model& m) {
  const config::Moe& moe = m.moe;
  if (!has_plain_layers(m) || !m.latent.enabled || !m.qk_layernorm || moe.num_experts == 0 ||
      m.window_size > 0 || m.add_bias_linear || !has_deepseek_positions(m) ||
      m.norm_epsilon != kDeepseekEpsilon || m.normalization != config::Normalization::kRmsNorm ||
      m.activation != config::Activation::kSwiglu)
    return false;
  const std::vector<layout::LayerKind> kinds = layout::layer_kinds(m);
  return !moe.uses_sinkhorn() && moe.routed_size == 0 &&
         moe.router_score_function == config::RouterScore::kSigmoid && moe.router_enable_expert_bias &&
         groups_of_two(moe) && !moe.shared_expert_gate && moe.shared_expert_intermediate_size > 0 &&
         moe.shared_expert_intermediate_size % moe.ffn_hidden_size == 0 &&
         std::ranges::is_sorted(kinds, {}, &layout::LayerKind::is_moe) && kinds.back().is_moe();
}

bool has_gpt2_layers(const config::Model& m) {
  using config::Activation;
  return has_plain_layers(m) && m.position_embedding == config::PositionEmbedding::kLearnedAbsolute &&
         m.normalization == config::Normalization::kLayerNorm && m.add_bias_linear &&
         (m.activation == Activation::kGeluTanh || m.activation == Activation::kGeluErf) &&
         m.num_query_groups == m.num_attention_heads && m.window_size == 0 && !m.qk_layernorm &&
         m.kv_channels * m.num_attention_heads == m.hidden_size && !m.latent.enabled && m.mtp_num_layers == 0;
}

bool is_t5(const config::Model& m) {
  return config::has_several_stacks(m) && m.position_embedding == config::PositionEmbedding::kRelative &&
         m.normalization == config::Normalization::kRmsNorm && !m.apply_layernorm_1p &&
         m.activation == config::Activation::kGegluTanh && !m.has_qkv_bias() &&
         !m.output_layer_bias.value_or(false) && m.query_pre_attn_scalar == 1 &&
         m.num_query_groups == m.num_attention_heads && !m.qk_layernorm &&
         m.softmax_type == config::SoftmaxType::kVanilla && m.attn_logit_softcapping == 0 &&
         m.final_logit_softcapping == 0 && !m.sandwich_norm && !m.scale_embeddings && m.moe.num_experts == 0;
}

bool is_bert(const config::Model& m) {
  return m.bidirectional && m.lm_head_transform && m.apply_residual_connection_post_layernorm &&
         m.num_tokentypes > 0 && m.output_layer_bias.value_or(false) && has_gpt2_layers(m) &&
         m.activation == config::Activation::kGeluErf && m.moe.num_experts == 0 && !m.scale_decoder_outputs &&
         m.final_logit_softcapping == 0;
}

/// Tensors that do not affect the output, matched by the begin and end of their names; without `families`: of
/// all families.
struct UnusedTensor {
  std::string_view begin, end;
  std::string_view what;
  std::set<Family> families = {};
};
const std::vector<UnusedTensor>& unused_tensors() {
  constexpr std::string_view kBuffers = "buffers", kHeads = "tensors of heads for other tasks";
  static const std::vector<UnusedTensor> kAll = {
      {"", "rotary_emb.inv_freq", kBuffers},
      {"", "rotary_emb.cos_cached", kBuffers},
      {"", "rotary_emb.sin_cached", kBuffers},
      {"", ".attn.bias", kBuffers, {Family::kGpt2}},
      {"", ".attn.masked_bias", kBuffers, {Family::kGpt2}},
      {"", "embeddings.position_ids", kBuffers, {Family::kBert}},
      {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias", "", "unused biases", {Family::kT5}},
      {"score.", "", kHeads},
      {"qa_outputs.", "", kHeads},
      {"classifier.", "", kHeads},
      {"v_head.", "", kHeads},
      {"multiple_choice_head.", "", kHeads, {Family::kGpt2}},
      {"classification_head.", "", kHeads, {Family::kT5}},
      {"bert.pooler.dense.", "", kHeads, {Family::kBert}},
      {"cls.seq_relationship.", "", kHeads, {Family::kBert}},
  };
  return kAll;
}

/// Kind of a tensor that does not affect the output of a `family` model; "" for others.
std::string_view unused_kind(const std::string& name, std::optional<Family> family) {
  for (const UnusedTensor& row : unused_tensors())
    if (name.starts_with(row.begin) && name.ends_with(row.end) &&
        (row.families.empty() || (family && row.families.contains(*family))))
      return row.what;
  return "";
}

/// Tensors that are always copies of others in a model of `family`.
std::vector<Copy> copies_in(std::optional<Family> family) {
  if (family == Family::kT5)
    return {{"encoder.embed_tokens.weight", "shared.weight"},
            {"decoder.embed_tokens.weight", "shared.weight"}};
  if (family == Family::kBert) return {{"cls.predictions.decoder.bias", "cls.predictions.bias", true}};
  return {};
}

/// Embedding or output table duplicated in an MTP layer; nothing for other tensors.
std::optional<Copy> copy_in_mtp_layer(const std::string& name) {
  if (name.ends_with(".embed_tokens.weight")) return Copy{name, "model.embed_tokens.weight"};
  if (name.ends_with(".shared_head.head.weight")) return Copy{name, "lm_head.weight"};
  return std::nullopt;
}

/// 0-based index of the MTP layer that `name` belongs to; negative for other tensors.
std::int64_t mtp_layer_of(const std::string& name, const config::Model& m) {
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return -1;
  return std::strtoll(name.c_str() + kLayers.size(), nullptr, 10) - m.num_layers;
}

}  // namespace

std::optional<Family> family_of(const config::Model& m) {
  if (m.qk_l2_norm || m.attention_output_gate || m.use_mup) return std::nullopt;
  if (is_t5(m)) return Family::kT5;
  if (is_bert(m)) return Family::kBert;
  if (has_unshared_parts(m)) return std::nullopt;
  if (const auto gemma = gemma_family(m)) return gemma;
  if (m.final_logit_softcapping != 0) return std::nullopt;
  if (is_gpt_oss(m)) return Family::kGptOss;
  const bool experts = m.moe.num_experts > 0;
  if (has_deepseek_v3_layers(m)) return Family::kDeepseekV3;
  if (has_llama_layers(m)) return experts ? expert_family(m) : dense_family(m);
  if (has_gpt2_layers(m) && !experts) return Family::kGpt2;
  return std::nullopt;
}

std::optional<Naming> naming_of(const config::Model& model) {
  const auto family = family_of(model);
  return family ? std::optional<Naming>(Naming{*family, model.num_layers}) : std::nullopt;
}

std::vector<StoredTensor> tensors_of(const layout::ParamSpec& spec, std::optional<Naming> naming) {
  if (!naming) return {{spec.name, 0, rows_of(spec, 0, 1)[0]}};
  auto [pattern, layer] = without_number(spec.name, naming->layers);
  const Table& table = table_of(naming->family);
  auto row = std::ranges::find(table, spec.name, &Row::ours);
  if (row == table.end()) row = std::ranges::find(table, pattern, &Row::ours);
  COL_CHECK(row != table.end(), "{}: the family's name table must hold every parameter; got no row for it",
            spec.name);
  if (row->of_layer_before) layer = std::to_string((layer.empty() ? naming->layers : std::stoll(layer)) - 1);
  // A tensor for each index of dimension 0 has its rows in the next one.
  const bool stacked = row->theirs[0].find("{}") != row->theirs[0].rfind("{}");
  const auto rows = rows_of(spec, stacked ? 1 : 0, row->theirs.size());
  std::vector<StoredTensor> tensors;
  for (std::int64_t expert = 0; expert < (stacked ? spec.shape[0] : 1); ++expert) {
    std::int64_t first = 0;
    for (std::size_t i = 0; i < rows.size(); first += rows[i++])
      tensors.push_back({.name = with_numbers(row->theirs[i], {layer, std::to_string(expert)}),
                         .first_row = first,
                         .rows = rows[i],
                         .transposed = row->transposed,
                         .index = stacked ? std::optional(expert) : std::nullopt});
  }
  return tensors;
}

std::vector<Copy> copies_to_save(const config::Model& model) {
  const bool own_output = family_of(model) == Family::kBert && model.untie_embeddings_and_output_weights;
  return own_output ? copies_in(Family::kBert) : std::vector<Copy>();
}

TensorDiff tensor_diff(const config::Model& model, const std::vector<std::string>& names) {
  const auto family = family_of(model);
  const bool tied = !model.untie_embeddings_and_output_weights;
  std::set<std::string> known;
  for (const layout::ParamSpec& spec : layout::model_params(model, {}))
    for (StoredTensor& tensor : tensors_of(spec, naming_of(model))) known.insert(std::move(tensor.name));
  TensorDiff left;
  const std::set<std::string> held(names.begin(), names.end());
  std::ranges::set_difference(known, held, std::back_inserter(left.missing));
  for (Copy& copy : copies_in(family))
    if (held.contains(copy.name) && known.insert(copy.name).second) left.copies.push_back(std::move(copy));
  if (tied) known.insert(family == Family::kBert ? "cls.predictions.decoder.weight" : "lm_head.weight");
  for (const std::string& name : names) {
    if (known.contains(name)) continue;
    const std::int64_t layer = family == Family::kDeepseekV3 ? mtp_layer_of(name, model) : -1;
    if (layer >= model.mtp_num_layers) {
      left.unused["tensors of layers for multi-token prediction"].push_back(name);
    } else if (const auto copy = layer >= 0 ? copy_in_mtp_layer(name) : std::nullopt) {
      left.copies.push_back(*copy);
    } else if (const std::string_view what = unused_kind(name, family); !what.empty()) {
      left.unused[std::string(what)].push_back(name);
    } else {
      left.unknown.push_back(name);
    }
  }
  return left;
}

}  // namespace colonnade::models::hf
