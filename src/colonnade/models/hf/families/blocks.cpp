// See blocks.h.
#include "colonnade/models/hf/families/blocks.h"

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <utility>

namespace colonnade::models::hf {
namespace {

/// Name patterns of a layer.
std::string ours_in_layer(std::string_view part) { return fmt::format("decoder.layers.{{}}.{}", part); }
std::string theirs_in_layer(std::string_view part) { return fmt::format("model.layers.{{}}.{}", part); }

Row in_layer(std::string_view ours, std::initializer_list<std::string_view> theirs) {
  Row row{.ours = ours_in_layer(ours), .theirs = {}};
  for (const std::string_view part : theirs) row.theirs.push_back(theirs_in_layer(part));
  return row;
}

/// Weight of a part of an expert.
std::string of_expert(const ExpertNames& names, std::string_view part) {
  return fmt::format("{}.{}.weight", names.experts, part);
}

std::string as_bias(std::string name) {
  constexpr std::string_view kWeight = "weight";
  return name.replace(name.size() - kWeight.size(), kWeight.size(), "bias");
}

/// `table` with a row for the bias of every weight whose name has `part`.
Table with_biases_of(Table table, std::string_view part) {
  const std::size_t rows = table.size();
  for (std::size_t i = 0; i < rows; ++i) {
    if (table[i].ours.find(part) == std::string::npos) continue;
    Row row{.ours = as_bias(table[i].ours), .theirs = {}, .of_layer_before = table[i].of_layer_before};
    for (const std::string& name : table[i].theirs) row.theirs.push_back(as_bias(name));
    table.push_back(std::move(row));
  }
  return table;
}

}  // namespace

Table joined(std::initializer_list<Table> tables) {
  Table all;
  for (const Table& table : tables) all.insert(all.end(), table.begin(), table.end());
  return all;
}

Table embedding_and_head() {
  return {{"embedding.word_embeddings.weight", {"model.embed_tokens.weight"}},
          {"decoder.final_layernorm.weight", {"model.norm.weight"}},
          {"output_layer.weight", {"lm_head.weight"}}};
}

Table pre_norms() {
  return {in_layer("input_layernorm.weight", {"input_layernorm.weight"}),
          in_layer("pre_mlp_layernorm.weight", {"post_attention_layernorm.weight"})};
}

Table sandwich_norms() {
  return {in_layer("input_layernorm.weight", {"input_layernorm.weight"}),
          in_layer("post_attention_layernorm.weight", {"post_attention_layernorm.weight"}),
          in_layer("pre_mlp_layernorm.weight", {"pre_feedforward_layernorm.weight"}),
          in_layer("post_mlp_layernorm.weight", {"post_feedforward_layernorm.weight"})};
}

Table output_norms() {
  return {in_layer("post_attention_layernorm.weight", {"post_attention_layernorm.weight"}),
          in_layer("post_mlp_layernorm.weight", {"post_feedforward_layernorm.weight"})};
}

Table attention() {
  return {in_layer("self_attention.linear_qkv.weight",
                   {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"}),
          in_layer("self_attention.linear_proj.weight", {"self_attn.o_proj.weight"})};
}

Table qkv_biases() {
  return {in_layer("self_attention.linear_qkv.bias",
                   {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"})};
}

Table qk_norms() {
  return {in_layer("self_attention.q_layernorm.weight", {"self_attn.q_norm.weight"}),
          in_layer("self_attention.k_layernorm.weight", {"self_attn.k_norm.weight"})};
}

Table latent_attention() {
  return {in_layer("self_attention.linear_q_proj.weight", {"self_attn.q_proj.weight"}),
          in_layer("self_attention.linear_q_down_proj.weight", {"self_attn.q_a_proj.weight"}),
          in_layer("self_attention.q_layernorm.weight", {"self_attn.q_a_layernorm.weight"}),
          in_layer("self_attention.linear_q_up_proj.weight", {"self_attn.q_b_proj.weight"}),
          in_layer("self_attention.linear_kv_down_proj.weight", {"self_attn.kv_a_proj_with_mqa.weight"}),
          in_layer("self_attention.kv_layernorm.weight", {"self_attn.kv_a_layernorm.weight"}),
          in_layer("self_attention.linear_kv_up_proj.weight", {"self_attn.kv_b_proj.weight"}),
          in_layer("self_attention.linear_proj.weight", {"self_attn.o_proj.weight"})};
}

Table gated_mlp() {
  return {in_layer("mlp.linear_fc1.weight", {"mlp.gate_proj.weight", "mlp.up_proj.weight"}),
          in_layer("mlp.linear_fc2.weight", {"mlp.down_proj.weight"})};
}

Table plain_mlp(std::string_view fc1, std::string_view fc2) {
  return {in_layer("mlp.linear_fc1.weight", {fmt::format("{}.weight", fc1)}),
          in_layer("mlp.linear_fc2.weight", {fmt::format("{}.weight", fc2)})};
}

Table with_biases(Table table) { return with_biases_of(std::move(table), ".linear_"); }

Table with_norm_biases(Table table) { return with_biases_of(std::move(table), "layernorm."); }

Table experts(const ExpertNames& names) {
  return {
      in_layer("mlp.router.weight", {fmt::format("{}.weight", names.router)}),
      in_layer("mlp.experts.linear_fc1.weight", {of_expert(names, names.gate), of_expert(names, names.up)}),
      in_layer("mlp.experts.linear_fc2.weight", {of_expert(names, names.down)})};
}

Table router_bias(std::string_view name) { return {in_layer("mlp.router.expert_bias", {name})}; }

Table shared_experts(std::string_view module) {
  return {in_layer("mlp.shared_experts.linear_fc1.weight",
                   {fmt::format("{}.gate_proj.weight", module), fmt::format("{}.up_proj.weight", module)}),
          in_layer("mlp.shared_experts.linear_fc2.weight", {fmt::format("{}.down_proj.weight", module)})};
}

std::vector<FusedExperts> fused_experts(const ExpertNames& names) {
  const auto part = [](std::string_view name) { return fmt::format(".experts.{{}}.{}.weight", name); };
  return {{".experts.gate_up_proj", {part(names.gate), part(names.up)}},
          {".experts.down_proj", {part(names.down)}}};
}

Table with_mtp_layers(Table table) {
  constexpr std::string_view kLayer = "decoder.layers.{}.";
  Table mtp = {{"mtp.layers.{}.enorm.weight", {"model.layers.{}.enorm.weight"}},
               {"mtp.layers.{}.hnorm.weight", {"model.layers.{}.hnorm.weight"}},
               {"mtp.layers.{}.eh_proj.weight", {"model.layers.{}.eh_proj.weight"}},
               {"mtp.layers.{}.final_layernorm.weight", {"model.layers.{}.shared_head.norm.weight"}}};
  for (const Row& row : table)
    if (row.ours.starts_with(kLayer))
      mtp.push_back({"mtp.layers.{}.transformer_layer." + row.ours.substr(kLayer.size()), row.theirs});
  table.insert(table.end(), std::make_move_iterator(mtp.begin()), std::make_move_iterator(mtp.end()));
  return table;
}

}  // namespace colonnade::models::hf
