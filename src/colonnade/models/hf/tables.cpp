// See tables.h.
#include "colonnade/models/hf/tables.h"

#include <fmt/format.h>

#include <map>
#include <string_view>
#include <utility>

namespace colonnade::models::hf {
namespace {

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

/// `table` with additional rows.
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

/// Other families call the pre-MLP norm post_attention_layernorm; Gemma's of that name does follow attention.
Table gemma_table(Table table) {
  std::erase_if(table, [](const Row& row) { return row.ours.ends_with("pre_mlp_layernorm.weight"); });
  return with(table, {{"decoder.layers.{}.post_attention_layernorm.weight",
                       {"model.layers.{}.post_attention_layernorm.weight"}},
                      {"decoder.layers.{}.pre_mlp_layernorm.weight",
                       {"model.layers.{}.pre_feedforward_layernorm.weight"}},
                      {"decoder.layers.{}.post_mlp_layernorm.weight",
                       {"model.layers.{}.post_feedforward_layernorm.weight"}}});
}

/// Adds rows for a layer's parameter, both in the model and in MTP layers.
void add_layer(Table& table, std::string_view part, const std::vector<std::string>& theirs) {
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

/// Rows of the encoder's or the decoder's layers; `mlp` is the MLP's index in a T5 block.
void add_t5_layers(Table& table, const std::string& stack, int mlp) {
  const auto ours = [&](const char* part) { return fmt::format("{}.layers.{{}}.{}", stack, part); };
  const auto theirs = [&](int layer, const char* part) {
    return fmt::format("{}.block.{{}}.layer.{}.{}", stack, layer, part);
  };
  table.push_back({ours("input_layernorm.weight"), {theirs(0, "layer_norm.weight")}});
  table.push_back({ours("self_attention.linear_qkv.weight"),
                   {theirs(0, "SelfAttention.q.weight"), theirs(0, "SelfAttention.k.weight"),
                    theirs(0, "SelfAttention.v.weight")}});
  table.push_back({ours("self_attention.linear_proj.weight"), {theirs(0, "SelfAttention.o.weight")}});
  table.push_back({ours("pre_mlp_layernorm.weight"), {theirs(mlp, "layer_norm.weight")}});
  table.push_back({ours("mlp.linear_fc1.weight"),
                   {theirs(mlp, "DenseReluDense.wi_0.weight"), theirs(mlp, "DenseReluDense.wi_1.weight")}});
  table.push_back({ours("mlp.linear_fc2.weight"), {theirs(mlp, "DenseReluDense.wo.weight")}});
}

Table t5_table() {
  Table table = {
      {"embedding.word_embeddings.weight", {"shared.weight"}},
      {"encoder.final_layernorm.weight", {"encoder.final_layer_norm.weight"}},
      {"decoder.final_layernorm.weight", {"decoder.final_layer_norm.weight"}},
      {"encoder_relative_pos_emb.relative_attention_bias.weight",
       {"encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"}},
      {"decoder_relative_pos_emb.relative_attention_bias.weight",
       {"decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"}},
      {"decoder.layers.{}.pre_cross_attn_layernorm.weight", {"decoder.block.{}.layer.1.layer_norm.weight"}},
      {"decoder.layers.{}.cross_attention.linear_q.weight",
       {"decoder.block.{}.layer.1.EncDecAttention.q.weight"}},
      {"decoder.layers.{}.cross_attention.linear_kv.weight",
       {"decoder.block.{}.layer.1.EncDecAttention.k.weight",
        "decoder.block.{}.layer.1.EncDecAttention.v.weight"}},
      {"decoder.layers.{}.cross_attention.linear_proj.weight",
       {"decoder.block.{}.layer.1.EncDecAttention.o.weight"}},
      {"lm_head.output_layer.weight", {"lm_head.weight"}},
  };
  add_t5_layers(table, "encoder", 1);
  add_t5_layers(table, "decoder", 2);
  return table;
}

/// Transformers' BERT is post-LN: each norm is the pre-norm of our next sub-layer.
Table bert_table() {
  Table table = {
      {"embedding.word_embeddings.weight", {"bert.embeddings.word_embeddings.weight"}},
      {"embedding.position_embeddings.weight", {"bert.embeddings.position_embeddings.weight"}},
      {"embedding.tokentype_embeddings.weight", {"bert.embeddings.token_type_embeddings.weight"}},
      {"output_layer.weight", {"cls.predictions.decoder.weight"}},
      {"output_layer.bias", {"cls.predictions.bias"}},
  };
  for (const std::string end : {"weight", "bias"}) {
    const auto add = [&](const std::string& ours, std::vector<std::string> theirs, bool before = false) {
      for (std::string& name : theirs) name += "." + end;
      table.push_back({.ours = ours + "." + end, .theirs = std::move(theirs), .of_layer_before = before});
    };
    const std::string ours = "encoder.layers.{}.", theirs = "bert.encoder.layer.{}.";
    add("encoder.layers.0.input_layernorm", {"bert.embeddings.LayerNorm"});
    add(ours + "input_layernorm", {theirs + "output.LayerNorm"}, true);
    add("encoder.final_layernorm", {theirs + "output.LayerNorm"}, true);
    add(ours + "self_attention.linear_qkv",
        {theirs + "attention.self.query", theirs + "attention.self.key", theirs + "attention.self.value"});
    add(ours + "self_attention.linear_proj", {theirs + "attention.output.dense"});
    add(ours + "pre_mlp_layernorm", {theirs + "attention.output.LayerNorm"});
    add(ours + "mlp.linear_fc1", {theirs + "intermediate.dense"});
    add(ours + "mlp.linear_fc2", {theirs + "output.dense"});
    add("lm_head.dense", {"cls.predictions.transform.dense"});
    add("lm_head.layer_norm", {"cls.predictions.transform.LayerNorm"});
    add("pooler.dense", {"bert.pooler.dense"});
    add("binary_head", {"cls.seq_relationship"});
  }
  return table;
}

}  // namespace

const Table& table_of(Family family) {
  static const std::map<Family, Table> kTables = {
      {Family::kLlama, llama_table()},
      {Family::kMistral, llama_table()},
      {Family::kQwen2, qwen2_table()},
      {Family::kQwen3, qwen3_table()},
      {Family::kMixtral, mixtral_table()},
      {Family::kQwen3Moe, qwen3_moe_table()},
      {Family::kGptOss, gpt_oss_table()},
      {Family::kGemma2, gemma_table(llama_table())},
      {Family::kGemma3, gemma_table(qwen3_table())},
      {Family::kGpt2, gpt2_table()},
      {Family::kDeepseekV3, deepseek_v3_table()},
      {Family::kT5, t5_table()},
      {Family::kBert, bert_table()},
  };
  return kTables.at(family);
}

}  // namespace colonnade::models::hf
