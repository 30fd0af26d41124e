// See bert.h.
#include "colonnade/models/hf/bert.h"

#include <algorithm>

#include "colonnade/models/hf/json.h"

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

std::map<std::string, std::string> bert_settings(const json& c, const std::string& source,
                                                 const std::vector<std::string>& tensors) {
  if (const std::string act = text(c, "hidden_act", "gelu"); act != "gelu")
    refuse(source, "hidden_act must be gelu", act);
  if (const std::string kind = text(c, "position_embedding_type", "absolute"); kind != "absolute")
    refuse(source, "position_embedding_type must be absolute", kind);
  for (const char* key : {"is_decoder", "add_cross_attention"})
    if (text(c, key, "false") != "false")
      refuse(source, std::string(key) + " must be false", text(c, key, ""));
  std::string architecture = "BertForMaskedLM";
  const json given = c.value("architectures", json());
  if (given.is_array() && !given.empty() && given[0].is_string()) architecture = given[0].get<std::string>();
  if (architecture != "BertForMaskedLM" && architecture != "BertForPreTraining")
    refuse(source, "architectures must be BertForMaskedLM or BertForPreTraining", architecture);
  const bool binary = architecture == "BertForPreTraining" ||
                      std::ranges::find(tensors, "cls.seq_relationship.weight") != tensors.end();
  const std::string heads = text(c, "num_attention_heads", "12");
  return {{"num_layers", text(c, "num_hidden_layers", "12")},
          {"hidden_size", text(c, "hidden_size", "768")},
          {"ffn_hidden_size", text(c, "intermediate_size", "3072")},
          {"num_attention_heads", heads},
          {"num_query_groups", heads},
          {"vocab_size", text(c, "vocab_size", "30522")},
          {"num_tokentypes", text(c, "type_vocab_size", "2")},
          {"max_position_embeddings", text(c, "max_position_embeddings", "512")},
          {"position_embedding_type", "learned_absolute"},
          {"layernorm_epsilon", text(c, "layer_norm_eps", "1e-12")},
          {"init_method_std", text(c, "initializer_range", "0.02")},
          {"normalization", "LayerNorm"},
          {"activation", "gelu"},
          {"add_bias_linear", "true"},
          {"apply_residual_connection_post_layernorm", "true"},
          {"bert_binary_head", binary ? "true" : "false"},
          {"output_layer_bias", "true"},
          {"untie_embeddings_and_output_weights",
           text(c, "tie_word_embeddings", "true") == "true" ? "false" : "true"}};
}

}  // namespace colonnade::models::hf
