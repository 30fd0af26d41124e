// See hf_names.h. Patterns hold {} where the number of the layer stands, and a second one for the expert's.
#include "colonnade/models/gpt/hf_names.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string_view>

#include "colonnade/base/error.h"
#include "colonnade/plan/params/gpt.h"

namespace colonnade::models::gpt {
namespace {

/// One row of a family's table. `theirs` has one name per piece of our parameter, or one for all.
struct Row {
  std::string ours;
  std::vector<std::string_view> theirs;
  bool transposed = false;
};

using Table = std::vector<Row>;

Table llama_table() {
  return {
      {"embedding.word_embeddings.weight", {"model.embed_tokens.weight"}},
      {"decoder.layers.{}.input_layernorm.weight", {"model.layers.{}.input_layernorm.weight"}},
      {"decoder.layers.{}.self_attention.linear_qkv.weight",
       {"model.layers.{}.self_attn.q_proj.weight", "model.layers.{}.self_attn.k_proj.weight",
        "model.layers.{}.self_attn.v_proj.weight"}},
      {"decoder.layers.{}.self_attention.linear_proj.weight", {"model.layers.{}.self_attn.o_proj.weight"}},
      {"decoder.layers.{}.pre_mlp_layernorm.weight", {"model.layers.{}.post_attention_layernorm.weight"}},
      {"decoder.layers.{}.mlp.linear_fc1.weight",
       {"model.layers.{}.mlp.gate_proj.weight", "model.layers.{}.mlp.up_proj.weight"}},
      {"decoder.layers.{}.mlp.linear_fc2.weight", {"model.layers.{}.mlp.down_proj.weight"}},
      {"decoder.final_layernorm.weight", {"model.norm.weight"}},
      {"output_layer.weight", {"lm_head.weight"}},
  };
}

/// `table` and what a family has besides.
Table with(Table table, const Table& more) {
  table.insert(table.end(), more.begin(), more.end());
  return table;
}

Table qwen2_table() {
  return with(llama_table(),
              {{"decoder.layers.{}.self_attention.linear_qkv.bias",
                {"model.layers.{}.self_attn.q_proj.bias", "model.layers.{}.self_attn.k_proj.bias",
                 "model.layers.{}.self_attn.v_proj.bias"}}});
}

Table qwen3_table() {
  return with(
      llama_table(),
      {{"decoder.layers.{}.self_attention.q_layernorm.weight", {"model.layers.{}.self_attn.q_norm.weight"}},
       {"decoder.layers.{}.self_attention.k_layernorm.weight", {"model.layers.{}.self_attn.k_norm.weight"}}});
}

Table mixtral_table() {
  return with(llama_table(),
              {{"decoder.layers.{}.mlp.router.weight", {"model.layers.{}.block_sparse_moe.gate.weight"}},
               {"decoder.layers.{}.mlp.experts.linear_fc1.weight",
                {"model.layers.{}.block_sparse_moe.experts.{}.w1.weight",
                 "model.layers.{}.block_sparse_moe.experts.{}.w3.weight"}},
               {"decoder.layers.{}.mlp.experts.linear_fc2.weight",
                {"model.layers.{}.block_sparse_moe.experts.{}.w2.weight"}}});
}

Table qwen3_moe_table() {
  return with(
      qwen3_table(),
      {{"decoder.layers.{}.mlp.router.weight", {"model.layers.{}.mlp.gate.weight"}},
       {"decoder.layers.{}.mlp.experts.linear_fc1.weight",
        {"model.layers.{}.mlp.experts.{}.gate_proj.weight", "model.layers.{}.mlp.experts.{}.up_proj.weight"}},
       {"decoder.layers.{}.mlp.experts.linear_fc2.weight",
        {"model.layers.{}.mlp.experts.{}.down_proj.weight"}}});
}

Table gpt_oss_table() {
  return with(
      qwen2_table(),
      {{"decoder.layers.{}.self_attention.linear_proj.bias", {"model.layers.{}.self_attn.o_proj.bias"}},
       {"decoder.layers.{}.self_attention.core_attention.softmax_offset",
        {"model.layers.{}.self_attn.sinks"}},
       {"decoder.layers.{}.mlp.router.weight", {"model.layers.{}.mlp.router.weight"}},
       {"decoder.layers.{}.mlp.router.bias", {"model.layers.{}.mlp.router.bias"}},
       {"decoder.layers.{}.mlp.experts.linear_fc1.weight",
        {"model.layers.{}.mlp.experts.gate_up_proj"},
        true},
       {"decoder.layers.{}.mlp.experts.linear_fc1.bias", {"model.layers.{}.mlp.experts.gate_up_proj_bias"}},
       {"decoder.layers.{}.mlp.experts.linear_fc2.weight", {"model.layers.{}.mlp.experts.down_proj"}, true},
       {"decoder.layers.{}.mlp.experts.linear_fc2.bias", {"model.layers.{}.mlp.experts.down_proj_bias"}}});
}

/// What the others call the norm after attention stands before the MLP; here it stands where its name says.
Table gemma3_table() {
  Table table = qwen3_table();
  std::erase_if(table, [](const Row& row) { return row.ours.ends_with("pre_mlp_layernorm.weight"); });
  return with(table, {{"decoder.layers.{}.post_attention_layernorm.weight",
                       {"model.layers.{}.post_attention_layernorm.weight"}},
                      {"decoder.layers.{}.pre_mlp_layernorm.weight",
                       {"model.layers.{}.pre_feedforward_layernorm.weight"}},
                      {"decoder.layers.{}.post_mlp_layernorm.weight",
                       {"model.layers.{}.post_feedforward_layernorm.weight"}}});
}

/// The name of a layer of the model, and of one that predicts a further token.
void add_layer(Table& table, std::string_view part, const std::vector<std::string_view>& theirs) {
  for (const char* prefix : {"decoder.layers.{}.", "mtp.layers.{}.transformer_layer."})
    table.push_back({prefix + std::string(part), theirs});
}

Table deepseek_v3_table() {
  Table table = {
      {"embedding.word_embeddings.weight", {"model.embed_tokens.weight"}},
      {"mtp.layers.{}.enorm.weight", {"model.layers.{}.enorm.weight"}},
      {"mtp.layers.{}.hnorm.weight", {"model.layers.{}.hnorm.weight"}},
      {"mtp.layers.{}.eh_proj.weight", {"model.layers.{}.eh_proj.weight"}},
      {"mtp.layers.{}.final_layernorm.weight", {"model.layers.{}.shared_head.norm.weight"}},
      {"decoder.final_layernorm.weight", {"model.norm.weight"}},
      {"output_layer.weight", {"lm_head.weight"}},
  };
  add_layer(table, "input_layernorm.weight", {"model.layers.{}.input_layernorm.weight"});
  add_layer(table, "self_attention.linear_q_proj.weight", {"model.layers.{}.self_attn.q_proj.weight"});
  add_layer(table, "self_attention.linear_q_down_proj.weight", {"model.layers.{}.self_attn.q_a_proj.weight"});
  add_layer(table, "self_attention.q_layernorm.weight", {"model.layers.{}.self_attn.q_a_layernorm.weight"});
  add_layer(table, "self_attention.linear_q_up_proj.weight", {"model.layers.{}.self_attn.q_b_proj.weight"});
  add_layer(table, "self_attention.linear_kv_down_proj.weight",
            {"model.layers.{}.self_attn.kv_a_proj_with_mqa.weight"});
  add_layer(table, "self_attention.kv_layernorm.weight", {"model.layers.{}.self_attn.kv_a_layernorm.weight"});
  add_layer(table, "self_attention.linear_kv_up_proj.weight", {"model.layers.{}.self_attn.kv_b_proj.weight"});
  add_layer(table, "self_attention.linear_proj.weight", {"model.layers.{}.self_attn.o_proj.weight"});
  add_layer(table, "pre_mlp_layernorm.weight", {"model.layers.{}.post_attention_layernorm.weight"});
  add_layer(table, "mlp.linear_fc1.weight",
            {"model.layers.{}.mlp.gate_proj.weight", "model.layers.{}.mlp.up_proj.weight"});
  add_layer(table, "mlp.linear_fc2.weight", {"model.layers.{}.mlp.down_proj.weight"});
  add_layer(table, "mlp.router.weight", {"model.layers.{}.mlp.gate.weight"});
  add_layer(table, "mlp.router.expert_bias", {"model.layers.{}.mlp.gate.e_score_correction_bias"});
  add_layer(
      table, "mlp.experts.linear_fc1.weight",
      {"model.layers.{}.mlp.experts.{}.gate_proj.weight", "model.layers.{}.mlp.experts.{}.up_proj.weight"});
  add_layer(table, "mlp.experts.linear_fc2.weight", {"model.layers.{}.mlp.experts.{}.down_proj.weight"});
  add_layer(table, "mlp.shared_experts.linear_fc1.weight",
            {"model.layers.{}.mlp.shared_experts.gate_proj.weight",
             "model.layers.{}.mlp.shared_experts.up_proj.weight"});
  add_layer(table, "mlp.shared_experts.linear_fc2.weight",
            {"model.layers.{}.mlp.shared_experts.down_proj.weight"});
  return table;
}

Table gpt2_table() {
  return {
      {"embedding.word_embeddings.weight", {"transformer.wte.weight"}},
      {"embedding.position_embeddings.weight", {"transformer.wpe.weight"}},
      {"decoder.layers.{}.input_layernorm.weight", {"transformer.h.{}.ln_1.weight"}},
      {"decoder.layers.{}.input_layernorm.bias", {"transformer.h.{}.ln_1.bias"}},
      {"decoder.layers.{}.self_attention.linear_qkv.weight", {"transformer.h.{}.attn.c_attn.weight"}, true},
      {"decoder.layers.{}.self_attention.linear_qkv.bias", {"transformer.h.{}.attn.c_attn.bias"}},
      {"decoder.layers.{}.self_attention.linear_proj.weight", {"transformer.h.{}.attn.c_proj.weight"}, true},
      {"decoder.layers.{}.self_attention.linear_proj.bias", {"transformer.h.{}.attn.c_proj.bias"}},
      {"decoder.layers.{}.pre_mlp_layernorm.weight", {"transformer.h.{}.ln_2.weight"}},
      {"decoder.layers.{}.pre_mlp_layernorm.bias", {"transformer.h.{}.ln_2.bias"}},
      {"decoder.layers.{}.mlp.linear_fc1.weight", {"transformer.h.{}.mlp.c_fc.weight"}, true},
      {"decoder.layers.{}.mlp.linear_fc1.bias", {"transformer.h.{}.mlp.c_fc.bias"}},
      {"decoder.layers.{}.mlp.linear_fc2.weight", {"transformer.h.{}.mlp.c_proj.weight"}, true},
      {"decoder.layers.{}.mlp.linear_fc2.bias", {"transformer.h.{}.mlp.c_proj.bias"}},
      {"decoder.final_layernorm.weight", {"transformer.ln_f.weight"}},
      {"decoder.final_layernorm.bias", {"transformer.ln_f.bias"}},
      {"output_layer.weight", {"lm_head.weight"}},
  };
}

const Table& table_of(HfFamily family) {
  static const std::map<HfFamily, Table> kTables = {
      {HfFamily::kLlama, llama_table()},     {HfFamily::kMistral, llama_table()},
      {HfFamily::kQwen2, qwen2_table()},     {HfFamily::kQwen3, qwen3_table()},
      {HfFamily::kMixtral, mixtral_table()}, {HfFamily::kQwen3Moe, qwen3_moe_table()},
      {HfFamily::kGptOss, gpt_oss_table()},  {HfFamily::kGemma3, gemma3_table()},
      {HfFamily::kGpt2, gpt2_table()},       {HfFamily::kDeepseekV3, deepseek_v3_table()},
  };
  return kTables.at(family);
}

/// "decoder.layers.12.mlp..." -> ("decoder.layers.{}.mlp...", "12"); "mtp.layers.0..." with the number behind
/// those of `layers`.
std::pair<std::string, std::string> without_number(const std::string& name, std::int64_t layers) {
  for (const std::string_view prefix : {"decoder.layers.", "mtp.layers."}) {
    if (!name.starts_with(prefix)) continue;
    const auto dot = name.find('.', prefix.size());
    const auto number = std::stoll(name.substr(prefix.size(), dot - prefix.size()));
    const bool further = prefix.front() == 'm';
    return {std::string(prefix) + "{}" + name.substr(dot), std::to_string(number + (further ? layers : 0))};
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

/// The rows of dimension `dim` that each tensor of a row has: those of a piece, or all.
std::vector<std::int64_t> rows_of(const plan::ParamSpec& spec, std::size_t dim, std::size_t tensors) {
  if (tensors == 1) return {dim < spec.shape.size() ? spec.shape[dim] : 1};
  const auto cut = std::ranges::find(spec.cuts, static_cast<int>(dim), &plan::Cut::dim);
  COL_CHECK(cut != spec.cuts.end() && cut->pieces.size() == tensors,
            "{}: the name table has {} tensors for it; got another number of pieces", spec.name, tensors);
  std::vector<std::int64_t> rows;
  for (const plan::Piece& piece : cut->pieces) rows.push_back(piece.size);
  return rows;
}

/// Whole heads turn, by frequencies that config.json has words for.
bool has_rotary_heads(const config::Model& m) {
  if (!m.rotary() || m.rotary_percent != 1.0 || m.rotary_interleaved) return false;
  if (m.position_embedding == config::PositionEmbedding::kYarn)
    return !m.use_rope_scaling && m.rotary_seq_len_interpolation_factor == 1.0 &&
           ((m.mscale == 1 && m.mscale_all_dim == 0) || (m.mscale != 0 && m.mscale_all_dim != 0));
  return !m.use_rope_scaling || m.rotary_seq_len_interpolation_factor == 1.0;
}

/// Attention of one kind in all layers, by scores over the root of the head's size alone.
bool has_plain_layers(const config::Model& m) {
  return m.softmax_type == config::SoftmaxType::kVanilla && m.attn_logit_softcapping == 0 &&
         !m.query_pre_attn_scalar && m.window_attn_skip_freq.empty() && !m.rotary_base_local &&
         !m.sandwich_norm && !m.scale_embeddings && !m.apply_layernorm_1p;
}

/// What the families with Llama's layers share; qkv biases, QK norms, windows and experts tell them apart.
bool has_llama_layers(const config::Model& m) {
  return !m.latent.enabled && m.mtp_num_layers == 0 && has_plain_layers(m) && has_rotary_heads(m) &&
         m.normalization == config::Normalization::kRmsNorm && m.activation == config::Activation::kSwiglu &&
         !m.add_bias_linear;
}

bool has_experts_everywhere(const config::Model& m) {
  return std::ranges::count(plan::layers_with_experts(m), false) == 0;
}

bool has_plain_router(const config::Moe& moe) {
  return moe.router_score_function == config::RouterScore::kSoftmax && moe.router_num_groups == 0 &&
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

bool is_gemma3(const config::Model& m) {
  return !m.latent.enabled && m.mtp_num_layers == 0 && has_rotary_heads(m) &&
         m.normalization == config::Normalization::kRmsNorm && m.apply_layernorm_1p &&
         m.activation == config::Activation::kGegluTanh && !m.add_bias_linear && !m.add_qkv_bias &&
         m.qk_layernorm && m.sandwich_norm && m.scale_embeddings &&
         m.softmax_type == config::SoftmaxType::kVanilla && m.attn_logit_softcapping == 0 &&
         m.query_pre_attn_scalar && (m.rotary_base_local || m.window_size == 0) && m.moe.num_experts == 0;
}

std::optional<HfFamily> dense_family(const config::Model& m) {
  const bool window = m.window_size > 0;
  if (m.qk_layernorm) return m.add_qkv_bias || window ? std::nullopt : std::optional(HfFamily::kQwen3);
  if (m.add_qkv_bias) return window ? std::nullopt : std::optional(HfFamily::kQwen2);
  return window ? HfFamily::kMistral : HfFamily::kLlama;
}

std::optional<HfFamily> expert_family(const config::Model& m) {
  const config::Moe& moe = m.moe;
  if (!has_plain_router(moe) || m.add_qkv_bias) return std::nullopt;
  if (m.qk_layernorm) return m.window_size > 0 ? std::nullopt : std::optional(HfFamily::kQwen3Moe);
  return has_experts_everywhere(m) && !moe.router_pre_softmax ? std::optional(HfFamily::kMixtral)
                                                              : std::nullopt;
}

/// Groups are worth their best two scores, whatever a token's experts and groups are.
bool groups_of_two(const config::Moe& moe) {
  if (moe.router_num_groups <= 1) return true;
  const std::int64_t best = moe.router_group_best > 0
                                ? moe.router_group_best
                                : moe.router_topk / std::max<std::int64_t>(moe.router_group_topk, 1);
  return best == 2;
}

/// Theirs takes no weight of the attention factor without one of the scores.
bool has_deepseek_yarn(const config::Model& m) {
  if (m.position_embedding != config::PositionEmbedding::kYarn) return true;
  return m.mscale_all_dim > 0 ? m.mscale > 0 : m.mscale == 1;
}

/// Its norms of narrow vectors have this epsilon whatever config.json says.
constexpr double kDeepseekEpsilon = 1e-6;

bool has_deepseek_v3_layers(const config::Model& m) {
  const config::Moe& moe = m.moe;
  if (!has_plain_layers(m) || !m.latent.enabled || !m.qk_layernorm || moe.num_experts == 0 ||
      m.window_size > 0 || m.add_bias_linear || !m.rotary() || !has_deepseek_yarn(m) ||
      m.norm_epsilon != kDeepseekEpsilon || m.normalization != config::Normalization::kRmsNorm ||
      m.activation != config::Activation::kSwiglu || m.use_rope_scaling ||
      m.rotary_seq_len_interpolation_factor != 1.0)
    return false;
  const std::vector<bool> experts = plan::layers_with_experts(m);
  return moe.router_score_function == config::RouterScore::kSigmoid && moe.router_enable_expert_bias &&
         groups_of_two(moe) && !moe.shared_expert_gate && moe.shared_expert_intermediate_size > 0 &&
         moe.shared_expert_intermediate_size % moe.ffn_hidden_size == 0 && std::ranges::is_sorted(experts) &&
         experts.back();
}

bool has_gpt2_layers(const config::Model& m) {
  using config::Activation;
  return has_plain_layers(m) && m.position_embedding == config::PositionEmbedding::kLearnedAbsolute &&
         m.normalization == config::Normalization::kLayerNorm && m.add_bias_linear &&
         (m.activation == Activation::kGeluTanh || m.activation == Activation::kGeluErf) &&
         m.num_query_groups == m.num_attention_heads && m.window_size == 0 && !m.qk_layernorm &&
         m.kv_channels * m.num_attention_heads == m.hidden_size && !m.latent.enabled && m.mtp_num_layers == 0;
}

/// Of a layer that predicts a further token: one that the model has not, or a copy of a table.
bool is_further(const std::string& name, const config::Model& m) {
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return false;
  const auto layer = std::strtoll(name.c_str() + kLayers.size(), nullptr, 10) - m.num_layers;
  return layer >= m.mtp_num_layers || (layer >= 0 && (name.ends_with(".embed_tokens.weight") ||
                                                      name.ends_with(".shared_head.head.weight")));
}

}  // namespace

std::optional<HfFamily> hf_family(const config::Model& m) {
  if (is_gpt_oss(m)) return HfFamily::kGptOss;
  if (is_gemma3(m)) return HfFamily::kGemma3;
  const bool experts = m.moe.num_experts > 0;
  if (has_deepseek_v3_layers(m)) return HfFamily::kDeepseekV3;
  if (has_llama_layers(m)) return experts ? expert_family(m) : dense_family(m);
  if (has_gpt2_layers(m) && !experts) return HfFamily::kGpt2;
  return std::nullopt;
}

std::optional<HfNaming> hf_naming(const config::Model& model) {
  const auto family = hf_family(model);
  return family ? std::optional<HfNaming>(HfNaming{*family, model.num_layers}) : std::nullopt;
}

std::vector<HfTensor> hf_tensors(const plan::ParamSpec& spec, std::optional<HfNaming> naming) {
  if (!naming) return {{spec.name, 0, rows_of(spec, 0, 1)[0]}};
  const auto [pattern, layer] = without_number(spec.name, naming->layers);
  const Table& table = table_of(naming->family);
  const auto row = std::ranges::find(table, pattern, &Row::ours);
  COL_CHECK(row != table.end(), "{}: the family's name table must hold every parameter; got no row for it",
            spec.name);
  // A tensor for each index of dimension 0 has its rows in the next one.
  const bool stacked = row->theirs[0].find("{}") != row->theirs[0].rfind("{}");
  const auto rows = rows_of(spec, stacked ? 1 : 0, row->theirs.size());
  std::vector<HfTensor> tensors;
  for (std::int64_t expert = 0; expert < (stacked ? spec.shape[0] : 1); ++expert) {
    std::int64_t first = 0;
    for (std::size_t i = 0; i < rows.size(); first += rows[i++])
      tensors.push_back({.name = with_numbers(row->theirs[i], {layer, std::to_string(expert)}),
                         .first_row = first,
                         .rows = rows[i],
                         .transposed = row->transposed,
                         .expert = stacked ? std::optional(expert) : std::nullopt});
  }
  return tensors;
}

std::vector<std::string> left_over(const config::Model& model, const std::vector<std::string>& names) {
  std::set<std::string> known;
  for (const plan::ParamSpec& spec : plan::gpt_params(model, {}))
    for (HfTensor& tensor : hf_tensors(spec, hf_naming(model))) known.insert(std::move(tensor.name));
  if (!model.untie_embeddings_and_output_weights) known.insert("lm_head.weight");
  constexpr std::string_view kBuffers[] = {".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"};
  std::vector<std::string> rest;
  const bool predicts = hf_family(model) == HfFamily::kDeepseekV3;
  for (const std::string& name : names)
    if (!known.contains(name) && !(predicts && is_further(name, model))) rest.push_back(name);
  std::erase_if(rest, [&](const std::string& name) {
    return std::ranges::any_of(kBuffers, [&](std::string_view end) { return name.ends_with(end); });
  });
  return rest;
}

}  // namespace colonnade::models::gpt
