// Reads config.json; see config.h.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "colonnade/base/error.h"
#include "colonnade/models/hf/bert.h"
#include "colonnade/models/hf/config.h"
#include "colonnade/models/hf/json.h"
#include "colonnade/models/hf/names.h"
#include "colonnade/models/hf/t5.h"

namespace colonnade::models::hf {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 7> kReadAsLlama = {"llama",   "mistral",   "qwen2",      "qwen3",
                                                          "mixtral", "qwen3_moe", "deepseek_v3"};

/// Without weights of its own the attention factor is 1 + 0.1 ln factor: that of mscale 1 over that of 0.
void read_yarn(const json& c, const json& scaling, const std::string& source, Settings& s) {
  if (text(scaling, "factor", "").empty()) refuse(source, "rope_scaling of yarn must have a factor", "none");
  if (!text(scaling, "attention_factor", "").empty())
    refuse(source, "rope_scaling must have no attention_factor", text(scaling, "attention_factor", ""));
  const auto weight = [&](const char* key) {
    return text(scaling, key, "0") == "0.0" ? "0" : text(scaling, key, "0");
  };
  const bool both = weight("mscale") != "0" && weight("mscale_all_dim") != "0";
  if (!both && weight("mscale_all_dim") != "0")
    refuse(source, "rope_scaling must have mscale where it has mscale_all_dim", weight("mscale"));
  s["position_embedding_type"] = "yarn";
  s["rotary_scaling_factor"] = text(scaling, "factor", "");
  s["mscale"] = both ? weight("mscale") : "1";
  s["mscale_all_dim"] = weight("mscale_all_dim");
  s["yarn_beta_fast"] = text(scaling, "beta_fast", "32");
  s["yarn_beta_slow"] = text(scaling, "beta_slow", "1");
  s["yarn_correction_range_round_to_int"] = text(scaling, "truncate", "true");
  s["yarn_original_max_position_embeddings"] =
      text(scaling, "original_max_position_embeddings", text(c, "max_position_embeddings", "4096"));
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
  } else if (type == "yarn") {
    read_yarn(c, scaling, source, s);
  } else {
    refuse(source, "rope_scaling must be linear, llama3 or yarn", type);
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
/// have a window. Such models are not read.
void refuse_windows(const json& c, const std::string& source, bool experts) {
  const json types = c.value("layer_types", json());
  for (const json& type : types)
    if (type != "full_attention")
      refuse(source, "layer_types must be full_attention: windows of Qwen models are not read", type.dump());
  if (text(c, "use_sliding_window", "false") == "false" || text(c, "sliding_window", "").empty()) return;
  const std::int64_t layers = number(c, "num_hidden_layers", 0, source);
  std::int64_t first = 0;
  if (!experts) first = types.is_null() ? number(c, "max_window_layers", 28, source) : layers;
  if (first < layers)
    refuse(source, "use_sliding_window must be false: windows of Qwen models are not read",
           fmt::format("true from layer {} on", first));
}

/// Windows of the layers that layer_types calls sliding_attention; without it, of all but each
/// sliding_window_pattern-th, or `usual`.
void read_windows(const json& c, const std::string& source, std::int64_t usual, Settings& s) {
  const std::int64_t layers =
      std::clamp<std::int64_t>(number(c, "num_hidden_layers", 0, source), 0, 1'000'000);
  const json types = c.value("layer_types", json());
  const std::int64_t pattern = number(c, "sliding_window_pattern", usual, source);
  if (pattern < 1) refuse(source, "sliding_window_pattern must be at least 1", std::to_string(pattern));
  if (!types.is_null() && static_cast<std::int64_t>(types.size()) != layers)
    refuse(source, fmt::format("layer_types must have one for each of {} layers", layers), types.dump());
  std::vector<int> windows;
  for (std::int64_t i = 0; i < layers; ++i) {
    const json type = types.is_null() ? json() : types[static_cast<std::size_t>(i)];
    if (!type.is_null() && type != "full_attention" && type != "sliding_attention")
      refuse(source, "layer_types must be full_attention or sliding_attention", type.dump());
    windows.push_back(type.is_null() ? (i + 1) % pattern != 0 : type == "sliding_attention");
  }
  if (std::ranges::count(windows, 1) == 0) return;
  const std::int64_t window = number(c, "sliding_window", 0, source);
  if (window < 2) refuse(source, "sliding_window must be at least 2", std::to_string(window));
  s["window_size"] = fmt::format("{},0", window - 1);
  if (std::ranges::count(windows, 0) > 0)
    s["window_attn_skip_freq"] = fmt::format("[{}]", fmt::join(windows, ","));
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

/// Sizes and switches that all but GPT-2 have under the same names.
Settings common_settings(const json& c) {
  return {{"num_layers", text(c, "num_hidden_layers", "0")},
          {"hidden_size", text(c, "hidden_size", "0")},
          {"ffn_hidden_size", text(c, "intermediate_size", "0")},
          {"num_attention_heads", text(c, "num_attention_heads", "0")},
          {"num_query_groups", text(c, "num_key_value_heads", text(c, "num_attention_heads", "0"))},
          {"vocab_size", text(c, "vocab_size", "0")},
          {"max_position_embeddings", text(c, "max_position_embeddings", "0")},
          {"init_method_std", text(c, "initializer_range", "0.02")},
          {"normalization", "RMSNorm"},
          {"position_embedding_type", "rope"}};
}

Settings gpt_oss_settings(const json& c, const std::string& source) {
  if (c.contains("quantization_config"))
    refuse(source, "quantization_config must be absent: weights are read in bf16, fp16 or fp32", "one");
  if (c.value("swiglu_alpha", kQuickAlpha) != kQuickAlpha)
    refuse(source, "swiglu_alpha must be 1.702", text(c, "swiglu_alpha", ""));
  if (text(c, "attention_bias", "true") != "true") refuse(source, "attention_bias must be true", "false");
  Settings s = common_settings(c);
  s.merge(Settings{{"kv_channels", text(c, "head_dim", "64")},
                   {"layernorm_epsilon", text(c, "rms_norm_eps", "1e-05")},
                   {"activation", "quick-geglu"},
                   {"glu_linear_offset", "1"},
                   {"activation_func_clamp_value", text(c, "swiglu_limit", "7")},
                   {"add_bias_linear", "true"},
                   {"softmax_type", "learnable"},
                   {"num_experts", text(c, "num_local_experts", "128")},
                   {"moe_router_topk", text(c, "num_experts_per_tok", "4")},
                   {"moe_router_score_function", "softmax"},
                   {"moe_router_pre_softmax", "false"},
                   {"moe_ffn_hidden_size", text(c, "intermediate_size", "0")},
                   {"moe_layer_freq", "1"},
                   {"untie_embeddings_and_output_weights",
                    text(c, "tie_word_embeddings", "false") == "true" ? "false" : "true"}});
  read_rope(c, source, "150000", s);
  read_windows(c, source, 2, s);
  return s;
}

/// A soft cap; 0 where it is null, `usual` where it is missing.
std::string cap(const json& c, const char* key, const char* usual) {
  return c.contains(key) ? text(c, key, "0") : usual;
}

/// What Gemma 2 and Gemma 3 share.
Settings gemma_settings(const json& c, const std::string& source) {
  for (const char* flag : {"attention_bias", "use_bidirectional_attention"})
    if (text(c, flag, "false") != "false") refuse(source, fmt::format("{} must be false", flag), "true");
  const std::string act = text(c, "hidden_activation", text(c, "hidden_act", "gelu_pytorch_tanh"));
  if (act != "gelu_pytorch_tanh") refuse(source, "hidden_activation must be gelu_pytorch_tanh", act);
  Settings s = common_settings(c);
  s.merge(Settings{{"kv_channels", text(c, "head_dim", "256")},
                   {"layernorm_epsilon", text(c, "rms_norm_eps", "1e-06")},
                   {"activation", "geglu-tanh"},
                   {"add_bias_linear", "false"},
                   {"layernorm_zero_centered_gamma", "true"},
                   {"sandwich_norm", "true"},
                   {"scale_embeddings", "true"},
                   {"query_pre_attn_scalar", text(c, "query_pre_attn_scalar", "256")},
                   {"untie_embeddings_and_output_weights",
                    text(c, "tie_word_embeddings", "true") == "true" ? "false" : "true"}});
  return s;
}

Settings gemma2_settings(const json& c, const std::string& source) {
  Settings s = gemma_settings(c, source);
  s["attn_logit_softcapping"] = cap(c, "attn_logit_softcapping", "50");
  s["final_logit_softcapping"] = cap(c, "final_logit_softcapping", "30");
  read_rope(c, source, "10000", s);
  read_windows(c, source, 2, s);
  return s;
}

Settings gemma3_settings(const json& c, const std::string& source) {
  // Transformers reads it and does not apply it.
  if (!text(c, "attn_logit_softcapping", "").empty())
    refuse(source, "attn_logit_softcapping must be null", text(c, "attn_logit_softcapping", ""));
  Settings s = gemma_settings(c, source);
  s["qk_layernorm"] = "true";
  s["final_logit_softcapping"] = cap(c, "final_logit_softcapping", "0");
  // Newer files say both kinds of layers' positions in one place.
  json whole = c;
  std::string local = text(c, "rope_local_base_freq", "10000");
  if (const json kinds = c.value("rope_parameters", json()); kinds.contains("full_attention")) {
    whole["rope_parameters"] = kinds["full_attention"];
    local = text(kinds.value("sliding_attention", json::object()), "rope_theta", local);
  }
  read_rope(whole, source, "1000000", s);
  read_windows(c, source, 6, s);
  if (s.contains("window_size")) s["rotary_base_local"] = local;
  return s;
}

/// Of DeepSeek-V3: attention of narrow vectors, then experts. Layers that predict further tokens
/// (num_nextn_predict_layers) are a matter of the training, and not read: --mtp-num-layers asks for them.
void read_deepseek_v3(const json& c, const std::string& source, Settings& s) {
  if (c.value("rms_norm_eps", 1e-6) != 1e-6)
    refuse(source, "rms_norm_eps must be 1e-06, which norms of narrow vectors have",
           text(c, "rms_norm_eps", ""));
  if (text(c, "rope_interleave", "true") != "true") refuse(source, "rope_interleave must be true", "false");
  if (number(c, "moe_layer_freq", 1, source) != 1)
    refuse(source, "moe_layer_freq must be 1", text(c, "moe_layer_freq", ""));
  if (text(c, "scoring_func", "sigmoid") != "sigmoid")
    refuse(source, "scoring_func must be sigmoid", text(c, "scoring_func", ""));
  const std::int64_t topk = number(c, "num_experts_per_tok", 8, source);
  if ((text(c, "norm_topk_prob", "true") == "true") != (topk > 1))
    refuse(source, "norm_topk_prob must be true, or false with one expert a token",
           text(c, "norm_topk_prob", "true"));
  const std::int64_t plain = number(c, "qk_nope_head_dim", 128, source);
  const std::int64_t turned = number(c, "qk_rope_head_dim", 64, source);
  const std::int64_t expert = number(c, "moe_intermediate_size", 2048, source);
  const std::int64_t groups = number(c, "n_group", 8, source);
  const std::int64_t dense = number(c, "first_k_dense_replace", 3, source);
  const std::int64_t layers = number(c, "num_hidden_layers", 0, source);
  s["multi_latent_attention"] = "true";
  s["q_lora_rank"] = text(c, "q_lora_rank", c.contains("q_lora_rank") ? "0" : "1536");
  s["kv_lora_rank"] = text(c, "kv_lora_rank", "512");
  s["qk_head_dim"] = std::to_string(plain);
  s["qk_pos_emb_head_dim"] = std::to_string(turned);
  s["kv_channels"] = std::to_string(plain + turned);
  s["v_head_dim"] = text(c, "v_head_dim", "128");
  s["num_query_groups"] = s["num_attention_heads"];
  s["qk_layernorm"] = "true";
  s["num_experts"] = text(c, "n_routed_experts", "256");
  s["moe_layer_freq"] =
      dense > 0 ? fmt::format("([0]*{}+[1]*{})", dense, std::max<std::int64_t>(layers - dense, 0)) : "1";
  s["moe_ffn_hidden_size"] = std::to_string(expert);
  s["moe_shared_expert_intermediate_size"] =
      std::to_string(expert * number(c, "n_shared_experts", 1, source));
  s["moe_router_topk"] = std::to_string(topk);
  s["moe_router_score_function"] = "sigmoid";
  s["moe_router_enable_expert_bias"] = "true";
  s["moe_router_topk_scaling_factor"] = text(c, "routed_scaling_factor", "2.5");
  if (groups <= 1) return;
  s["moe_router_num_groups"] = std::to_string(groups);
  s["moe_router_group_topk"] = text(c, "topk_group", "4");
  s["moe_router_group_best"] = "2";
}

Settings llama_settings(const json& c, const std::string& source, const std::string& type) {
  for (const char* bias : {"attention_bias", "mlp_bias"})
    if (text(c, bias, "false") != "false") refuse(source, fmt::format("{} must be false", bias), "true");
  if (text(c, "hidden_act", "silu") != "silu")
    refuse(source, "hidden_act must be silu", text(c, "hidden_act", ""));
  const bool qwen3 = type.starts_with("qwen3");
  Settings s = common_settings(c);
  s.merge(Settings{{"kv_channels", text(c, "head_dim", type == "qwen3" ? "128" : "0")},
                   {"layernorm_epsilon", text(c, "rms_norm_eps", type == "mixtral" ? "1e-05" : "1e-06")},
                   {"qk_layernorm", qwen3 ? "true" : "false"},
                   {"activation", "swiglu"},
                   {"add_bias_linear", "false"},
                   {"add_qkv_bias", type == "qwen2" ? "true" : "false"},
                   {"untie_embeddings_and_output_weights",
                    text(c, "tie_word_embeddings", "false") == "true" ? "false" : "true"}});
  read_rope(c, source, type == "mixtral" ? "1000000" : "10000", s);
  if (type.starts_with("qwen")) refuse_windows(c, source, type == "qwen3_moe");
  if ((type == "mistral" || type == "mixtral") && !text(c, "sliding_window", "").empty())
    s["window_size"] = fmt::format("{},0", number(c, "sliding_window", 0, source) - 1);
  if (type == "deepseek_v3") read_deepseek_v3(c, source, s);
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

Settings gpt_settings(const json& config, const std::string& source, const std::string& type) {
  if (type == "gpt2") return gpt2_settings(config, source);
  if (type == "gpt_oss") return gpt_oss_settings(config, source);
  if (type == "gemma2") return gemma2_settings(config, source);
  if (type == "gemma3_text") return gemma3_settings(config, source);
  if (std::ranges::find(kReadAsLlama, type) != std::end(kReadAsLlama))
    return llama_settings(config, source, type);
  refuse(source,
         fmt::format("model_type must be one of {}, gpt_oss, gemma2, gemma3_text, gpt2, t5, bert",
                     fmt::join(kReadAsLlama, ", ")),
         type.empty() ? "none" : type);
}

}  // namespace

Settings settings_of(const json& config, const std::string& source, const std::vector<std::string>& tensors) {
  if (!config.is_object()) refuse(source, "it must be a JSON object", config.type_name());
  const std::string type = text(config, "model_type", "");
  const bool of_its_own = type == "t5" || type == "bert";
  Settings settings = type == "t5"     ? t5_settings(config, source)
                      : type == "bert" ? bert_settings(config, source, tensors)
                                       : gpt_settings(config, source, type);
  settings["model"] = of_its_own ? type : "gpt";
  return settings;
}

}  // namespace colonnade::models::hf
