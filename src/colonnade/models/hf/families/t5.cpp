// T5 and T5 1.1: encoder and decoder, relative positions, RMSNorm, ReLU or gated GELU, no biases, unscaled
// scores, multi-head attention.
#include <fmt/format.h>

#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {

using nlohmann::json;

namespace {

json t5_config(const config::Model& m) {
  return {{"is_encoder_decoder", true},
          {"d_model", m.hidden_size},
          {"d_kv", m.kv_channels},
          {"d_ff", m.ffn_hidden_size},
          {"num_layers", m.encoder_num_layers},
          {"num_decoder_layers", m.num_layers},
          {"num_heads", m.num_attention_heads},
          {"relative_attention_num_buckets", m.relative_attention_num_buckets},
          {"relative_attention_max_distance", m.relative_attention_max_distance},
          {"feed_forward_proj", m.is_gated() ? "gated-gelu" : "relu"},
          {"dense_act_fn", m.is_gated() ? "gelu_new" : "relu"},
          {"is_gated_act", m.is_gated()},
          {"layer_norm_epsilon", m.norm_epsilon},
          {"dropout_rate", m.hidden_dropout},
          {"initializer_factor", 1.0},
          {"vocab_size", m.vocab_size},
          {"pad_token_id", 0},
          {"eos_token_id", 1},
          {"decoder_start_token_id", 0},
          {"scale_decoder_outputs", m.scale_decoder_outputs},
          {"tie_word_embeddings", !m.untie_embeddings_and_output_weights}};
}

/// Reports features that our T5 lacks as faults. scale_decoder_outputs defaults to Transformers' behaviour:
/// true unless tie_word_embeddings is false.
void read_t5(const ReadContext& r) {
  auto& [type, keys, faults, s, tensors] = r;
  keys.alias("d_model", "hidden_size");
  keys.alias("num_heads", "num_attention_heads");
  keys.alias("num_layers", "num_hidden_layers");
  keys.alias("d_kv", "head_dim");
  const std::string act = keys.word("feed_forward_proj", "relu");
  const bool gated = act == "gated-gelu";
  if (!gated && act != "relu") keys.fault("feed_forward_proj", "must be relu or gated-gelu", json(act));
  keys.only("dense_act_fn", {gated ? "gelu_new" : "relu"});
  keys.only("is_gated_act", {gated});
  keys.only("is_encoder_decoder", {true});
  keys.only("is_decoder", {false});
  if (const json start = keys.any("decoder_start_token_id"); !start.is_null() && start != 0)
    keys.fault("decoder_start_token_id", "must be 0, the start token of `evaluate --tokens`", start);
  static constexpr std::string_view kIgnored[] = {"n_positions", "initializer_factor"};
  keys.ignore(kIgnored);
  const std::int64_t layers = keys.integer("num_layers", 6, 1, kMostLayers);
  const std::int64_t decoder = keys.integer_or_null("num_decoder_layers", layers).value_or(layers);
  if (decoder > kMostLayers)
    keys.fault("num_decoder_layers", fmt::format("must be at most {}", kMostLayers), json(decoder),
               "correct the file");
  const std::int64_t heads = keys.integer("num_heads", 8);
  const json tie = keys.any("tie_word_embeddings");
  const bool tied = tie.is_null() || keys.flag("tie_word_embeddings", true);
  const double dropout = keys.real("dropout_rate", 0.1, {.least = 0, .most = 1});
  s = {{"encoder_num_layers", text(layers)},
       {"num_layers", text(decoder)},
       {"hidden_size", text(keys.integer("d_model", 512))},
       {"kv_channels", text(keys.integer("d_kv", 64))},
       {"ffn_hidden_size", text(keys.integer("d_ff", 2048))},
       {"num_attention_heads", text(heads)},
       {"num_query_groups", text(heads)},
       {"query_pre_attn_scalar", "1"},
       {"vocab_size", text(keys.integer("vocab_size", 32128))},
       {"position_embedding_type", "relative"},
       {"relative_attention_num_buckets",
        text(keys.integer("relative_attention_num_buckets", 32, 4, 1'000'000))},
       {"relative_attention_max_distance", text(keys.integer("relative_attention_max_distance", 128, 2))},
       {"normalization", "RMSNorm"},
       {"layernorm_epsilon", text(keys.real("layer_norm_epsilon", 1e-6, {.least = 0, .most = 1}))},
       {"activation", gated ? "geglu-tanh" : "relu"},
       {"add_bias_linear", "false"},
       {"output_layer_bias", "false"},
       {"scale_decoder_outputs", text(keys.flag("scale_decoder_outputs", tied))},
       {"untie_embeddings_and_output_weights", text(!tied)},
       {"hidden_dropout", text(dropout)},
       {"attention_dropout", text(dropout)}};
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
  table.push_back({ours("mlp.linear_fc1.weight"), {theirs(mlp, "DenseReluDense.wi.weight")}});
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

/// Scores of T5 are not scaled.
bool has_unscaled_scores(const config::Model& m) { return m.query_pre_attn_scalar == 1; }

}  // namespace

const Family& t5() {
  static const Family kFamily = {
      .types = {{"t5", {"T5ForConditionalGeneration", "T5WithLMHeadModel", "T5Model"}}},
      .model = "t5",
      .has = {Feature::kSeveralStacks, Feature::kRelativePositions, Feature::kRmsNorm, Feature::kScoreScale},
      .may_have = {Feature::kScaledOutputs, Feature::kGegluTanh, Feature::kRelu},
      .also = has_unscaled_scores,
      .names = t5_table(),
      .read = read_t5,
      .write = t5_config,
      .spelling = {.prefix = "",
                   .roots = {"shared", "encoder", "decoder"},
                   .heads = {"lm_head", "classification_head", "qa_outputs"}},
      .tied = {"shared.weight",
               "lm_head.weight",
               {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}},
      .copies = {{"encoder.embed_tokens.weight", "shared.weight"},
                 {"decoder.embed_tokens.weight", "shared.weight"}},
      .unused = {{"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias", "", "unused biases"},
                 {"classification_head.", "", kHeads}}};
  return kFamily;
}

}  // namespace colonnade::models::hf
