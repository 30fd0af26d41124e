// See hf_config.h.
#include "colonnade/models/gpt/hf_config.h"

#include <fmt/format.h>

#include "colonnade/base/error.h"
#include "colonnade/models/gpt/hf_names.h"

namespace colonnade::models::gpt {
namespace {

using nlohmann::json;
using Settings = std::map<std::string, std::string>;

std::string dtype_name(config::ParamsDtype dtype) {
  switch (dtype) {
    case config::ParamsDtype::kBfloat16:
      return "bfloat16";
    case config::ParamsDtype::kFloat16:
      return "float16";
    default:
      return "float32";
  }
}

json rope_scaling(const config::Model& m) {
  if (m.use_rope_scaling)
    return {{"rope_type", "llama3"},
            {"factor", m.rope_scaling_factor},
            {"low_freq_factor", m.rope_low_freq_factor},
            {"high_freq_factor", m.rope_high_freq_factor},
            {"original_max_position_embeddings", m.rope_original_max_position_embeddings}};
  if (m.rotary_seq_len_interpolation_factor != 1.0)
    return {{"rope_type", "linear"}, {"factor", m.rotary_seq_len_interpolation_factor}};
  return nullptr;
}

json llama_config(const config::Model& m, bool mistral) {
  json c = {{"architectures", {mistral ? "MistralForCausalLM" : "LlamaForCausalLM"}},
            {"model_type", mistral ? "mistral" : "llama"},
            {"hidden_act", "silu"},
            {"hidden_size", m.hidden_size},
            {"intermediate_size", m.ffn_hidden_size},
            {"num_hidden_layers", m.num_layers},
            {"num_attention_heads", m.num_attention_heads},
            {"num_key_value_heads", m.num_query_groups},
            {"head_dim", m.kv_channels},
            {"vocab_size", m.vocab_size},
            {"max_position_embeddings", m.max_position_embeddings},
            {"rms_norm_eps", m.norm_epsilon},
            {"rope_theta", m.rotary_base},
            {"rope_scaling", rope_scaling(m)},
            {"initializer_range", m.init_method_std},
            {"attention_dropout", m.attention_dropout},
            {"tie_word_embeddings", !m.untie_embeddings_and_output_weights},
            {"torch_dtype", dtype_name(m.params_dtype)}};
  if (mistral)
    c["sliding_window"] = m.window_size + 1;  // theirs counts the token itself
  else
    c.update({{"attention_bias", false}, {"mlp_bias", false}});
  return c;
}

json gpt2_config(const config::Model& m) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"activation_function", m.activation == config::Activation::kGeluTanh ? "gelu_new" : "gelu"},
          {"n_embd", m.hidden_size},
          {"n_inner", m.ffn_hidden_size},
          {"n_layer", m.num_layers},
          {"n_head", m.num_attention_heads},
          {"n_positions", m.max_position_embeddings},
          {"vocab_size", m.vocab_size},
          {"layer_norm_epsilon", m.norm_epsilon},
          {"initializer_range", m.init_method_std},
          {"attn_pdrop", m.attention_dropout},
          {"embd_pdrop", m.hidden_dropout},
          {"resid_pdrop", m.hidden_dropout},
          {"tie_word_embeddings", !m.untie_embeddings_and_output_weights},
          {"torch_dtype", dtype_name(m.params_dtype)}};
}

/// A value of the config as text; `fallback` where it is missing or null.
std::string text(const json& c, const char* key, const std::string& fallback) {
  if (!c.contains(key) || c[key].is_null()) return fallback;
  return c[key].is_string() ? c[key].get<std::string>() : c[key].dump();
}

[[noreturn]] void refuse(const std::string& source, const std::string& what, const std::string& got) {
  throw ConfigError(fmt::format("{}: {}; got {}; convert the model or choose another", source, what, got));
}

void read_rope(const json& c, const std::string& source, Settings& s) {
  // Newer files keep theta and scaling in rope_parameters.
  const json parameters = c.contains("rope_parameters") && !c["rope_parameters"].is_null()
                              ? c["rope_parameters"]
                              : json::object();
  s["rotary_base"] = text(parameters, "rope_theta", text(c, "rope_theta", "10000"));
  const json scaling =
      c.contains("rope_scaling") && !c["rope_scaling"].is_null() ? c["rope_scaling"] : parameters;
  const std::string type = text(scaling, "rope_type", text(scaling, "type", "default"));
  if (type == "default") return;
  if (type == "linear") {
    s["rotary_seq_len_interpolation_factor"] = text(scaling, "factor", "1");
  } else if (type == "llama3") {
    s["use_rope_scaling"] = "true";
    s["rope_scaling_factor"] = text(scaling, "factor", "8");
    s["rope_low_freq_factor"] = text(scaling, "low_freq_factor", "1");
    s["rope_high_freq_factor"] = text(scaling, "high_freq_factor", "4");
    s["rope_original_max_position_embeddings"] = text(scaling, "original_max_position_embeddings", "8192");
  } else {
    refuse(source, "rope_scaling must be linear or llama3", type);
  }
}

Settings llama_settings(const json& c, const std::string& source) {
  for (const char* bias : {"attention_bias", "mlp_bias"})
    if (text(c, bias, "false") != "false") refuse(source, fmt::format("{} must be false", bias), "true");
  if (text(c, "hidden_act", "silu") != "silu")
    refuse(source, "hidden_act must be silu", text(c, "hidden_act", ""));
  Settings s = {{"num_layers", text(c, "num_hidden_layers", "0")},
                {"hidden_size", text(c, "hidden_size", "0")},
                {"ffn_hidden_size", text(c, "intermediate_size", "0")},
                {"num_attention_heads", text(c, "num_attention_heads", "0")},
                {"num_query_groups", text(c, "num_key_value_heads", text(c, "num_attention_heads", "0"))},
                {"kv_channels", text(c, "head_dim", "0")},
                {"vocab_size", text(c, "vocab_size", "0")},
                {"max_position_embeddings", text(c, "max_position_embeddings", "0")},
                {"layernorm_epsilon", text(c, "rms_norm_eps", "1e-06")},
                {"init_method_std", text(c, "initializer_range", "0.02")},
                {"normalization", "RMSNorm"},
                {"activation", "swiglu"},
                {"position_embedding_type", "rope"},
                {"add_bias_linear", "false"},
                {"untie_embeddings_and_output_weights",
                 text(c, "tie_word_embeddings", "false") == "true" ? "false" : "true"}};
  read_rope(c, source, s);
  if (text(c, "model_type", "") == "mistral" && !text(c, "sliding_window", "").empty())
    s["window_size"] = fmt::format("{},0", c["sliding_window"].get<std::int64_t>() - 1);
  return s;
}

Settings gpt2_settings(const json& c, const std::string& source) {
  const std::string activation = text(c, "activation_function", "gelu_new");
  if (activation != "gelu_new" && activation != "gelu" && activation != "gelu_pytorch_tanh")
    refuse(source, "activation_function must be gelu_new or gelu", activation);
  if (text(c, "scale_attn_by_inverse_layer_idx", "false") != "false")
    refuse(source, "scale_attn_by_inverse_layer_idx must be false", "true");
  const std::string hidden = text(c, "n_embd", "768");
  return {{"num_layers", text(c, "n_layer", "12")},
          {"hidden_size", hidden},
          {"ffn_hidden_size", text(c, "n_inner", std::to_string(4 * std::stoll(hidden)))},
          {"num_attention_heads", text(c, "n_head", "12")},
          {"vocab_size", text(c, "vocab_size", "50257")},
          {"max_position_embeddings", text(c, "n_positions", "1024")},
          {"layernorm_epsilon", text(c, "layer_norm_epsilon", "1e-05")},
          {"init_method_std", text(c, "initializer_range", "0.02")},
          {"normalization", "LayerNorm"},
          {"activation", activation == "gelu" ? "gelu" : "gelu-tanh"},
          {"position_embedding_type", "learned_absolute"},
          {"add_bias_linear", "true"},
          {"untie_embeddings_and_output_weights",
           text(c, "tie_word_embeddings", "true") == "true" ? "false" : "true"}};
}

}  // namespace

json hf_config(const config::Model& model) {
  const auto family = hf_family(model);
  if (!family) return nullptr;
  return *family == HfFamily::kGpt2 ? gpt2_config(model) : llama_config(model, *family == HfFamily::kMistral);
}

Settings settings_of(const json& config, const std::string& source) {
  if (!config.is_object()) refuse(source, "it must be a JSON object", config.type_name());
  const std::string type = text(config, "model_type", "");
  if (type == "llama" || type == "mistral") return llama_settings(config, source);
  if (type == "gpt2") return gpt2_settings(config, source);
  refuse(source, "model_type must be llama, mistral or gpt2", type.empty() ? "none" : type);
}

}  // namespace colonnade::models::gpt
