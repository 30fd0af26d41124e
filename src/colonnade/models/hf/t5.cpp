// See t5.h.
#include "colonnade/models/hf/t5.h"

#include "colonnade/models/hf/json.h"

namespace colonnade::models::hf {

using nlohmann::json;

json t5_config(const config::Model& m) {
  return {{"architectures", {"T5ForConditionalGeneration"}},
          {"model_type", "t5"},
          {"is_encoder_decoder", true},
          {"d_model", m.hidden_size},
          {"d_kv", m.kv_channels},
          {"d_ff", m.ffn_hidden_size},
          {"num_layers", m.encoder_num_layers},
          {"num_decoder_layers", m.num_layers},
          {"num_heads", m.num_attention_heads},
          {"relative_attention_num_buckets", m.relative_attention_num_buckets},
          {"relative_attention_max_distance", m.relative_attention_max_distance},
          {"feed_forward_proj", "gated-gelu"},
          {"dense_act_fn", "gelu_new"},
          {"is_gated_act", true},
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

std::map<std::string, std::string> t5_settings(const json& c, const std::string& source) {
  const std::string act = text(c, "feed_forward_proj", "relu");
  if (act != "gated-gelu") refuse(source, "feed_forward_proj must be gated-gelu, as T5 1.1 has it", act);
  if (const std::string start = text(c, "decoder_start_token_id", "0"); start != "0")
    refuse(source, "decoder_start_token_id must be 0, which `evaluate --tokens` begins with", start);
  const std::string layers = text(c, "num_layers", "6");
  const std::string tied = text(c, "tie_word_embeddings", "true");
  return {{"encoder_num_layers", layers},
          {"num_layers", text(c, "num_decoder_layers", layers)},
          {"hidden_size", text(c, "d_model", "512")},
          {"kv_channels", text(c, "d_kv", "64")},
          {"ffn_hidden_size", text(c, "d_ff", "2048")},
          {"num_attention_heads", text(c, "num_heads", "8")},
          {"num_query_groups", text(c, "num_heads", "8")},
          {"query_pre_attn_scalar", "1"},
          {"vocab_size", text(c, "vocab_size", "32128")},
          {"position_embedding_type", "relative"},
          {"relative_attention_num_buckets", text(c, "relative_attention_num_buckets", "32")},
          {"relative_attention_max_distance", text(c, "relative_attention_max_distance", "128")},
          {"normalization", "RMSNorm"},
          {"layernorm_epsilon", text(c, "layer_norm_epsilon", "1e-06")},
          {"activation", "geglu-tanh"},
          {"add_bias_linear", "false"},
          {"output_layer_bias", "false"},
          {"scale_decoder_outputs", text(c, "scale_decoder_outputs", tied)},
          {"untie_embeddings_and_output_weights", tied == "true" ? "false" : "true"}};
}

}  // namespace colonnade::models::hf
