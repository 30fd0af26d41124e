// BERT: bidirectional attention, learned positions, token types, post-LN LayerNorm, GELU in erf form, biases,
// multi-head attention; with or without a binary head.
#include <algorithm>

#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {

using nlohmann::json;

namespace {

/// BertForPreTraining with a binary head, else BertForMaskedLM.
json bert_config(const config::Model& m) {
  return {{"architectures", {m.bert_binary_head ? "BertForPreTraining" : "BertForMaskedLM"}},
          {"hidden_act", "gelu"},
          {"hidden_size", m.hidden_size},
          {"intermediate_size", m.ffn_hidden_size},
          {"num_hidden_layers", m.num_layers},
          {"num_attention_heads", m.num_attention_heads},
          {"vocab_size", m.vocab_size},
          {"type_vocab_size", m.num_tokentypes},
          {"max_position_embeddings", m.max_position_embeddings},
          {"position_embedding_type", "absolute"},
          {"layer_norm_eps", m.norm_epsilon},
          {"initializer_range", m.init_method_std},
          {"hidden_dropout_prob", m.hidden_dropout},
          {"attention_probs_dropout_prob", m.attention_dropout},
          {"pad_token_id", 0},
          {"is_decoder", false},
          {"tie_word_embeddings", !m.untie_embeddings_and_output_weights}};
}

/// A checkpoint with the tensors of a sentence-order head gets one, whatever config.json says.
void read_bert(const ReadContext& r) {
  auto& [type, keys, faults, s, tensors] = r;
  keys.only("hidden_act", {"gelu"});
  keys.only("position_embedding_type", {"absolute"});
  keys.only("is_decoder", {false});
  std::string architecture = "BertForMaskedLM";
  const json given = keys.any("architectures");
  if (given.is_array() && !given.empty() && given[0].is_string()) architecture = given[0].get<std::string>();
  if (architecture != "BertForMaskedLM" && architecture != "BertForPreTraining")
    keys.fault("architectures", "must be BertForMaskedLM or BertForPreTraining", json(architecture));
  const bool binary = architecture == "BertForPreTraining" ||
                      std::ranges::find(tensors, "cls.seq_relationship.weight") != tensors.end();
  const std::int64_t hidden = keys.integer("hidden_size", 768);
  const std::int64_t heads = keys.integer("num_attention_heads", 12);
  if (hidden % heads != 0)
    keys.fault("hidden_size", "must be a multiple of num_attention_heads", json::array({hidden, heads}),
               "correct the file");
  constexpr Bounds kShare{.least = 0, .most = 1};
  s = {{"num_layers", text(keys.integer("num_hidden_layers", 12, 1, kMostLayers))},
       {"hidden_size", text(hidden)},
       {"ffn_hidden_size", text(keys.integer("intermediate_size", 3072))},
       {"num_attention_heads", text(heads)},
       {"num_query_groups", text(heads)},
       {"vocab_size", text(keys.integer("vocab_size", 30522))},
       {"num_tokentypes", text(keys.integer("type_vocab_size", 2))},
       {"max_position_embeddings", text(keys.integer("max_position_embeddings", 512))},
       {"position_embedding_type", "learned_absolute"},
       {"layernorm_epsilon", text(keys.real("layer_norm_eps", 1e-12, {.least = 0, .most = 1}))},
       {"init_method_std", text(keys.real("initializer_range", 0.02))},
       {"normalization", "LayerNorm"},
       {"activation", "gelu"},
       {"add_bias_linear", "true"},
       {"apply_residual_connection_post_layernorm", "true"},
       {"bert_binary_head", text(binary)},
       {"output_layer_bias", "true"},
       {"untie_embeddings_and_output_weights", text(!keys.flag("tie_word_embeddings", true))},
       {"hidden_dropout", text(keys.real("hidden_dropout_prob", 0.1, kShare))},
       {"attention_dropout", text(keys.real("attention_probs_dropout_prob", 0.1, kShare))}};
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

const Family& bert() {
  static const Family kFamily = {
      .types = {{"bert", {}}},
      .model = "bert",
      .has = {Feature::kBidirectional, Feature::kHeadTransform, Feature::kResidualAfterNorm,
              Feature::kTokenTypes, Feature::kOutputBias, Feature::kLearnedPositions, Feature::kLayerNorm,
              Feature::kGelu, Feature::kBias},
      .also = has_square_heads,
      .names = bert_table(),
      .read = read_bert,
      .write = bert_config,
      .spelling = {.prefix = "bert.",
                   .roots = {"embeddings", "encoder", "pooler"},
                   .heads = {"cls", "classifier", "qa_outputs"},
                   .respellings = {{".LayerNorm.gamma", ".LayerNorm.weight"},
                                   {".LayerNorm.beta", ".LayerNorm.bias"}}},
      .tied = {"bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"},
      .copies = {{"cls.predictions.decoder.bias", "cls.predictions.bias", true}},
      .unused = {{"", "embeddings.position_ids", kBuffers},
                 {"bert.pooler.dense.", "", kHeads},
                 {"cls.seq_relationship.", "", kHeads}}};
  return kFamily;
}

}  // namespace colonnade::models::hf
