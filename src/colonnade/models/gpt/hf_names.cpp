// See hf_names.h. Patterns hold {} where the number of the layer stands, and a second one for the expert's.
#include "colonnade/models/gpt/hf_names.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "colonnade/base/error.h"
#include "colonnade/plan/params/gpt.h"

namespace colonnade::models::gpt {
namespace {

/// One row of a family's table. `theirs` has one name per piece of our parameter, or one for all.
struct Row {
  std::string_view ours;
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
      {HfFamily::kGpt2, gpt2_table()},
  };
  return kTables.at(family);
}

constexpr std::string_view kLayers = "decoder.layers.";

/// "decoder.layers.12.mlp..." -> ("decoder.layers.{}.mlp...", "12").
std::pair<std::string, std::string> without_number(const std::string& name) {
  if (!name.starts_with(kLayers)) return {name, ""};
  const auto dot = name.find('.', kLayers.size());
  return {std::string(kLayers) + "{}" + name.substr(dot), name.substr(kLayers.size(), dot - kLayers.size())};
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

/// What the families with Llama's layers share; qkv biases, QK norms, windows and experts tell them apart.
bool has_llama_layers(const config::Model& m) {
  const bool scaled_twice = m.use_rope_scaling && m.rotary_seq_len_interpolation_factor != 1.0;
  return m.position_embedding == config::PositionEmbedding::kRope && m.rotary_percent == 1.0 &&
         !m.rotary_interleaved && !scaled_twice && m.normalization == config::Normalization::kRmsNorm &&
         m.activation == config::Activation::kSwiglu && !m.add_bias_linear;
}

std::optional<HfFamily> dense_family(const config::Model& m) {
  const bool window = m.window_size > 0;
  if (m.qk_layernorm) return m.add_qkv_bias || window ? std::nullopt : std::optional(HfFamily::kQwen3);
  if (m.add_qkv_bias) return window ? std::nullopt : std::optional(HfFamily::kQwen2);
  return window ? HfFamily::kMistral : HfFamily::kLlama;
}

std::optional<HfFamily> expert_family(const config::Model& m) {
  const config::Moe& moe = m.moe;
  const bool plain = moe.router_score_function == config::RouterScore::kSoftmax &&
                     moe.router_num_groups == 0 && moe.router_topk_scaling_factor.value_or(1) == 1 &&
                     !moe.router_enable_expert_bias && moe.shared_expert_intermediate_size == 0;
  if (!plain || m.add_qkv_bias) return std::nullopt;
  if (m.qk_layernorm) return m.window_size > 0 ? std::nullopt : std::optional(HfFamily::kQwen3Moe);
  const bool everywhere = std::ranges::count(plan::layers_with_experts(m), false) == 0;
  return everywhere && !moe.router_pre_softmax ? std::optional(HfFamily::kMixtral) : std::nullopt;
}

bool has_gpt2_layers(const config::Model& m) {
  using config::Activation;
  return m.position_embedding == config::PositionEmbedding::kLearnedAbsolute &&
         m.normalization == config::Normalization::kLayerNorm && m.add_bias_linear &&
         (m.activation == Activation::kGeluTanh || m.activation == Activation::kGeluErf) &&
         m.num_query_groups == m.num_attention_heads && m.window_size == 0 && !m.qk_layernorm &&
         m.kv_channels * m.num_attention_heads == m.hidden_size;
}

}  // namespace

std::optional<HfFamily> hf_family(const config::Model& m) {
  if (m.apply_layernorm_1p) return std::nullopt;
  const bool experts = m.moe.num_experts > 0;
  if (has_llama_layers(m)) return experts ? expert_family(m) : dense_family(m);
  if (has_gpt2_layers(m) && !experts) return HfFamily::kGpt2;
  return std::nullopt;
}

std::vector<HfTensor> hf_tensors(const plan::ParamSpec& spec, std::optional<HfFamily> family) {
  if (!family) return {{spec.name, 0, rows_of(spec, 0, 1)[0]}};
  const auto [pattern, layer] = without_number(spec.name);
  const Table& table = table_of(*family);
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
    for (HfTensor& tensor : hf_tensors(spec, hf_family(model))) known.insert(std::move(tensor.name));
  if (!model.untie_embeddings_and_output_weights) known.insert("lm_head.weight");
  constexpr std::string_view kBuffers[] = {".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"};
  std::vector<std::string> rest;
  for (const std::string& name : names)
    if (!known.contains(name) &&
        std::ranges::none_of(kBuffers, [&](std::string_view end) { return name.ends_with(end); }))
      rest.push_back(name);
  return rest;
}

}  // namespace colonnade::models::gpt
