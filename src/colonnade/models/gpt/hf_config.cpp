// See hf_config.h.
#include "colonnade/models/gpt/hf_config.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/models/gpt/hf_names.h"
#include "colonnade/plan/params/gpt.h"

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

/// What config.json calls the families with Llama's layers.
struct Called {
  HfFamily family;
  const char* type;
  const char* architecture;
};
constexpr Called kLlamaLike[] = {{HfFamily::kLlama, "llama", "LlamaForCausalLM"},
                                 {HfFamily::kMistral, "mistral", "MistralForCausalLM"},
                                 {HfFamily::kQwen2, "qwen2", "Qwen2ForCausalLM"},
                                 {HfFamily::kQwen3, "qwen3", "Qwen3ForCausalLM"},
                                 {HfFamily::kMixtral, "mixtral", "MixtralForCausalLM"},
                                 {HfFamily::kQwen3Moe, "qwen3_moe", "Qwen3MoeForCausalLM"}};

/// What a family's config.json has besides what all with Llama's layers have.
json particulars(const config::Model& m, HfFamily family) {
  const json window = m.window_size > 0 ? json(m.window_size + 1) : json();  // theirs counts the token itself
  switch (family) {
    case HfFamily::kMistral:
      return {{"sliding_window", window}};
    case HfFamily::kQwen2:
      return {{"use_sliding_window", false}};
    case HfFamily::kQwen3:
      return {{"attention_bias", false}, {"use_sliding_window", false}};
    case HfFamily::kMixtral:
      return {{"sliding_window", window},
              {"intermediate_size", m.moe.ffn_hidden_size},
              {"num_local_experts", m.moe.num_experts},
              {"num_experts_per_tok", m.moe.router_topk}};
    case HfFamily::kQwen3Moe: {
      json dense = json::array();
      const std::vector<bool> experts = plan::layers_with_experts(m);
      for (std::size_t i = 0; i < experts.size(); ++i)
        if (!experts[i]) dense.push_back(i);
      return {{"attention_bias", false},
              {"use_sliding_window", false},
              {"moe_intermediate_size", m.moe.ffn_hidden_size},
              {"num_experts", m.moe.num_experts},
              {"num_experts_per_tok", m.moe.router_topk},
              {"norm_topk_prob", !m.moe.router_pre_softmax},
              {"decoder_sparse_step", 1},
              {"mlp_only_layers", dense}};
    }
    default:
      return {{"attention_bias", false}, {"mlp_bias", false}};
  }
}

json llama_config(const config::Model& m, HfFamily family) {
  const Called& called = *std::ranges::find(kLlamaLike, family, &Called::family);
  json c = {{"architectures", {called.architecture}},
            {"model_type", called.type},
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
  c.update(particulars(m, family));
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

void read_rope(const json& c, const std::string& source, const std::string& theta, Settings& s) {
  // Newer files keep theta and scaling in rope_parameters.
  const json parameters = c.contains("rope_parameters") && !c["rope_parameters"].is_null()
                              ? c["rope_parameters"]
                              : json::object();
  s["rotary_base"] = text(parameters, "rope_theta", text(c, "rope_theta", theta));
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

/// A whole number; `fallback` where it is missing or null.
std::int64_t number(const json& c, const char* key, std::int64_t fallback, const std::string& source) {
  if (!c.contains(key) || c[key].is_null()) return fallback;
  if (!c[key].is_number_integer())
    refuse(source, fmt::format("{} must be a whole number", key), c[key].dump());
  return c[key].get<std::int64_t>();
}

/// In a Qwen model the layers from max_window_layers on, or those of layer_types (with experts: all), may
/// have a window. Ours have one window for all layers.
void refuse_windows(const json& c, const std::string& source, bool experts) {
  const json types = c.value("layer_types", json());
  for (const json& type : types)
    if (type != "full_attention")
      refuse(source, "layer_types must be full_attention: no layer can have a window of its own",
             type.dump());
  if (text(c, "use_sliding_window", "false") == "false" || text(c, "sliding_window", "").empty()) return;
  const std::int64_t layers = number(c, "num_hidden_layers", 0, source);
  std::int64_t first = 0;
  if (!experts) first = types.is_null() ? number(c, "max_window_layers", 28, source) : layers;
  if (first < layers)
    refuse(source, "use_sliding_window must be false: no layer can have a window of its own",
           fmt::format("true from layer {} on", first));
}

/// --moe-layer-freq of a model whose layer i has experts when it is not one of mlp_only_layers and i + 1 is a
/// multiple of decoder_sparse_step.
std::string layer_freq(const json& c, const std::string& source) {
  const std::int64_t layers =
      std::clamp<std::int64_t>(number(c, "num_hidden_layers", 0, source), 0, 1'000'000);
  const std::int64_t step = number(c, "decoder_sparse_step", 1, source);
  if (step < 1) refuse(source, "decoder_sparse_step must be at least 1", std::to_string(step));
  const json dense = c.value("mlp_only_layers", json());
  std::vector<int> experts;
  for (std::int64_t i = 0; i < layers; ++i)
    experts.push_back((i + 1) % step == 0 && std::count(dense.begin(), dense.end(), i) == 0 ? 1 : 0);
  if (std::ranges::count(experts, 0) == 0) return "1";
  return fmt::format("[{}]", fmt::join(experts, ","));
}

/// Weights of the losses that keep experts busy (router_aux_loss_coef) and the router's jitter are settings
/// of a training, as dropout is, and not read.
void read_experts(const json& c, const std::string& source, const std::string& type, Settings& s) {
  const bool mixtral = type == "mixtral";
  s["num_experts"] = text(c, "num_local_experts", text(c, "num_experts", mixtral ? "8" : "128"));
  s["moe_router_topk"] = text(c, "num_experts_per_tok", mixtral ? "2" : "8");
  s["moe_router_score_function"] = "softmax";
  const bool over_chosen = mixtral || text(c, "norm_topk_prob", "false") == "true";
  s["moe_router_pre_softmax"] = over_chosen ? "false" : "true";
  s["moe_ffn_hidden_size"] =
      mixtral ? text(c, "intermediate_size", "0") : text(c, "moe_intermediate_size", "768");
  s["moe_layer_freq"] = mixtral ? "1" : layer_freq(c, source);
}

Settings llama_settings(const json& c, const std::string& source, const std::string& type) {
  for (const char* bias : {"attention_bias", "mlp_bias"})
    if (text(c, bias, "false") != "false") refuse(source, fmt::format("{} must be false", bias), "true");
  if (text(c, "hidden_act", "silu") != "silu")
    refuse(source, "hidden_act must be silu", text(c, "hidden_act", ""));
  const bool qwen3 = type.starts_with("qwen3");
  Settings s = {{"num_layers", text(c, "num_hidden_layers", "0")},
                {"hidden_size", text(c, "hidden_size", "0")},
                {"ffn_hidden_size", text(c, "intermediate_size", "0")},
                {"num_attention_heads", text(c, "num_attention_heads", "0")},
                {"num_query_groups", text(c, "num_key_value_heads", text(c, "num_attention_heads", "0"))},
                {"kv_channels", text(c, "head_dim", type == "qwen3" ? "128" : "0")},
                {"vocab_size", text(c, "vocab_size", "0")},
                {"max_position_embeddings", text(c, "max_position_embeddings", "0")},
                {"layernorm_epsilon", text(c, "rms_norm_eps", type == "mixtral" ? "1e-05" : "1e-06")},
                {"init_method_std", text(c, "initializer_range", "0.02")},
                {"normalization", "RMSNorm"},
                {"qk_layernorm", qwen3 ? "true" : "false"},
                {"activation", "swiglu"},
                {"position_embedding_type", "rope"},
                {"add_bias_linear", "false"},
                {"add_qkv_bias", type == "qwen2" ? "true" : "false"},
                {"untie_embeddings_and_output_weights",
                 text(c, "tie_word_embeddings", "false") == "true" ? "false" : "true"}};
  read_rope(c, source, type == "mixtral" ? "1000000" : "10000", s);
  if (type.starts_with("qwen")) refuse_windows(c, source, type == "qwen3_moe");
  if ((type == "mistral" || type == "mixtral") && !text(c, "sliding_window", "").empty())
    s["window_size"] = fmt::format("{},0", number(c, "sliding_window", 0, source) - 1);
  if (type == "mixtral" || type == "qwen3_moe") read_experts(c, source, type, s);
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
  return *family == HfFamily::kGpt2 ? gpt2_config(model) : llama_config(model, *family);
}

Settings settings_of(const json& config, const std::string& source) {
  if (!config.is_object()) refuse(source, "it must be a JSON object", config.type_name());
  const std::string type = text(config, "model_type", "");
  if (type == "gpt2") return gpt2_settings(config, source);
  std::string types;
  for (const Called& called : kLlamaLike) {
    if (type == called.type) return llama_settings(config, source, type);
    types += std::string(called.type) + ", ";
  }
  refuse(source, "model_type must be one of " + types + "gpt2", type.empty() ? "none" : type);
}

}  // namespace colonnade::models::gpt
