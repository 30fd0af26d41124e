// See bert.h.
#include "colonnade/models/hf/bert.h"

#include <algorithm>

namespace colonnade::models::hf {

using nlohmann::json;

json bert_config(const config::Model& m) {
  return {{"architectures", {m.bert_binary_head ? "BertForPreTraining" : "BertForMaskedLM"}},
          {"model_type", "bert"},
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

void read_bert(Keys& keys, const std::vector<std::string>& tensors, Settings& s) {
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

}  // namespace colonnade::models::hf
