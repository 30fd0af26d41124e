// See hf_names.h. Patterns hold {} where the layer number stands.
#include "colonnade/models/gpt/hf_names.h"

#include <algorithm>
#include <charconv>
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

const std::vector<Row>& llama_table() {
  static const std::vector<Row> table = {
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
  return table;
}

const std::vector<Row>& gpt2_table() {
  static const std::vector<Row> table = {
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
  return table;
}

constexpr std::string_view kLayers = "decoder.layers.";

/// "decoder.layers.12.mlp..." -> ("decoder.layers.{}.mlp...", "12").
std::pair<std::string, std::string> without_number(const std::string& name) {
  if (!name.starts_with(kLayers)) return {name, ""};
  const auto dot = name.find('.', kLayers.size());
  return {std::string(kLayers) + "{}" + name.substr(dot), name.substr(kLayers.size(), dot - kLayers.size())};
}

std::string with_number(std::string_view pattern, const std::string& number) {
  std::string name(pattern);
  const auto at = name.find("{}");
  if (at != std::string::npos) name.replace(at, 2, number);
  return name;
}

}  // namespace

std::optional<HfFamily> hf_family(const config::Model& m) {
  using config::Activation, config::Normalization, config::PositionEmbedding;
  if (m.qk_layernorm || m.apply_layernorm_1p) return std::nullopt;
  const bool scaled_twice = m.use_rope_scaling && m.rotary_seq_len_interpolation_factor != 1.0;
  const bool llama = m.position_embedding == PositionEmbedding::kRope && m.rotary_percent == 1.0 &&
                     !m.rotary_interleaved && !scaled_twice && m.normalization == Normalization::kRmsNorm &&
                     m.activation == Activation::kSwiglu && !m.qkv_bias();
  if (llama) return m.window_size > 0 ? HfFamily::kMistral : HfFamily::kLlama;
  const bool gpt2 = m.position_embedding == PositionEmbedding::kLearnedAbsolute &&
                    m.normalization == Normalization::kLayerNorm && m.add_bias_linear &&
                    (m.activation == Activation::kGeluTanh || m.activation == Activation::kGeluErf) &&
                    m.num_query_groups == m.num_attention_heads && m.window_size == 0 &&
                    m.kv_channels * m.num_attention_heads == m.hidden_size;
  if (gpt2) return HfFamily::kGpt2;
  return std::nullopt;
}

std::vector<HfTensor> hf_tensors(const plan::ParamSpec& spec, std::optional<HfFamily> family) {
  const std::int64_t all_rows = spec.shape.empty() ? 1 : spec.shape[0];
  if (!family) return {{spec.name, 0, all_rows}};
  const auto [pattern, number] = without_number(spec.name);
  for (const Row& row : *family == HfFamily::kGpt2 ? gpt2_table() : llama_table()) {
    if (row.ours != pattern) continue;
    if (row.theirs.size() == 1) return {{with_number(row.theirs[0], number), 0, all_rows, row.transposed}};
    const plan::Cut* cut = spec.cut(plan::Axis::kTp);
    COL_CHECK(cut != nullptr && row.theirs.size() == cut->pieces.size(),
              "{}: the name table has {} tensors for it; got another number of pieces", spec.name,
              row.theirs.size());
    std::vector<HfTensor> tensors;
    std::int64_t first = 0;
    for (std::size_t i = 0; i < row.theirs.size(); ++i) {
      tensors.push_back({with_number(row.theirs[i], number), first, cut->pieces[i].size, row.transposed});
      first += cut->pieces[i].size;
    }
    return tensors;
  }
  fail(__FILE__, __LINE__,
       fmt::format("{}: the family's name table must hold every parameter; got no row for it", spec.name));
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
