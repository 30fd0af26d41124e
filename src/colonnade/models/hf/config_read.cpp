// Reads config.json; see config.h.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/config/derive.h"
#include "colonnade/config/parse.h"
#include "colonnade/models/hf/bert.h"
#include "colonnade/models/hf/config.h"
#include "colonnade/models/hf/deepseek.h"
#include "colonnade/models/hf/gpt2.h"
#include "colonnade/models/hf/known_keys.h"
#include "colonnade/models/hf/layers_read.h"
#include "colonnade/models/hf/names.h"
#include "colonnade/models/hf/positions_read.h"
#include "colonnade/models/hf/t5.h"

namespace colonnade::models::hf {
namespace {

using nlohmann::json;

/// Source and destination of reading a config.json.
struct ReadContext {
  Keys& keys;
  Faults& faults;
  Settings& settings;
};

/// A family with Llama's blocks and the defaults of its configuration class.
struct LlamaLike {
  std::string_view type;
  SizeDefaults sizes;
  double rope_theta;
};

const LlamaLike* find_llama_like(std::string_view type) {
  static const std::array<LlamaLike, 8> kFamilies = {{
      {"llama", {32000, 4096, 11008, 32, 32, {}, 2048, {}}, 1e4},
      {"mistral", {32000, 4096, 14336, 32, 32, 8, 131072, {}}, 1e4},
      {"qwen2", {151936, 4096, 22016, 32, 32, 32, 32768, {}}, 1e4},
      {"qwen3", {151936, 4096, 22016, 32, 32, 32, 32768, 128}, 1e4},
      {"mixtral", {32000, 4096, 14336, 32, 32, 8, 131072, {}, 1e-5}, 1e6},
      {"qwen3_moe", {151936, 2048, 6144, 24, 32, 4, 32768, {}}, 1e4},
      {"deepseek_v3", {129280, 7168, 18432, 61, 128, {}, 4096, {}}, 1e4},
      {"kimi_k2", {129280, 7168, 18432, 61, 128, {}, 4096, {}}, 1e4},  // DeepSeek-V3's layers and class
  }};
  const auto* found = std::ranges::find(kFamilies, type, &LlamaLike::type);
  return found == kFamilies.end() ? nullptr : found;
}

/// Top k of the router. `over_chosen`: weights are the softmax over the chosen experts.
std::int64_t read_topk(Keys& keys, std::int64_t default_value, bool over_chosen) {
  const std::int64_t topk = keys.integer("num_experts_per_tok", default_value);
  if (over_chosen && topk == 1)
    keys.fault("num_experts_per_tok", "must be at least 2: a single chosen expert always has weight 1",
               json(topk));
  return topk;
}

/// --moe-layer-freq: layer i has experts unless it is in mlp_only_layers or i + 1 is no multiple of
/// decoder_sparse_step.
std::string read_layer_freq(Keys& keys, std::int64_t layers) {
  const std::int64_t step = keys.integer("decoder_sparse_step", 1);
  const json dense = keys.any("mlp_only_layers");
  const bool listed = dense.is_array() &&
                      std::ranges::all_of(dense, [](const json& layer) { return layer.is_number_integer(); });
  if (!dense.is_null() && !listed)
    keys.fault("mlp_only_layers", "must be a list of layers", dense, "correct the file");
  std::set<std::int64_t> without;
  if (listed) without = dense.get<std::set<std::int64_t>>();
  std::vector<int> experts;
  for (std::int64_t i = 0; i < layers; ++i)
    experts.push_back((i + 1) % step == 0 && !without.contains(i) ? 1 : 0);
  if (std::ranges::count(experts, 0) == 0) return "1";
  return fmt::format("[{}]", fmt::join(experts, ","));
}

/// Load-balancing loss weights (router_aux_loss_coef) and router jitter are training settings and not read.
void read_experts(Keys& keys, bool mixtral, const Sizes& sizes, Settings& s) {
  keys.alias("num_experts", "num_local_experts");
  s["num_experts"] = text(keys.integer("num_experts", mixtral ? 8 : 128, 1, kMostExperts));
  s["moe_router_score_function"] = "softmax";
  const bool over_chosen = mixtral || keys.flag("norm_topk_prob", false);
  s["moe_router_topk"] = text(read_topk(keys, mixtral ? 2 : 8, over_chosen));
  s["moe_router_pre_softmax"] = text(!over_chosen);
  s["moe_ffn_hidden_size"] = text(mixtral ? sizes.intermediate : keys.integer("moe_intermediate_size", 768));
  s["moe_layer_freq"] = mixtral ? "1" : read_layer_freq(keys, sizes.layers);
}

void read_llama_like(const LlamaLike& family, ReadContext r) {
  auto& [keys, faults, s] = r;
  const std::string_view type = family.type;
  const bool deepseek = type == "deepseek_v3" || type == "kimi_k2";
  const Sizes sizes = read_sizes(keys, deepseek ? deepseek_sizes(keys, family.sizes) : family.sizes, s);
  keys.only("hidden_act", {"silu", "swish"});
  keys.only("activation", {"swiglu"});  // redundant with hidden_act
  s["activation"] = "swiglu";
  s["add_bias_linear"] = "false";
  s["qk_layernorm"] = text(type.starts_with("qwen3"));
  s["add_qkv_bias"] = text(type == "qwen2");
  read_positions(keys, {.theta = family.rope_theta, .max_position_embeddings = sizes.max_positions}, faults,
                 s);
  // Qwen2's projections have biases and Qwen3's have norms, whatever these keys say.
  if (type == "qwen2") keys.only("attention_bias", {true, false});
  if (type == "qwen2") keys.only("qkv_bias", {true});
  if (type.starts_with("qwen3")) keys.only("use_qk_norm", {true});
  if (type.starts_with("qwen")) reject_qwen_windows(keys, type == "qwen3_moe", sizes.layers);
  if (type == "mistral") read_window_everywhere(keys, 4096, sizes.layers, s);
  if (type == "mixtral") read_window_everywhere(keys, std::nullopt, sizes.layers, s);
  if (type == "llama" || deepseek) require_layer_types(keys, "full_attention", sizes.layers);
  if (deepseek) read_deepseek_v3(keys, sizes, s);
  if (type == "mixtral" || type == "qwen3_moe") read_experts(keys, type == "mixtral", sizes, s);
}

void read_gpt_oss(ReadContext r) {
  auto& [keys, faults, s] = r;
  constexpr std::int64_t kDefaultTopk = 4;
  const Sizes sizes = read_sizes(keys, {201088, 2880, 2880, 36, 64, 8, 131072, 64, 1e-5}, s);
  const json yarn = {{"rope_type", "yarn"}, {"factor", 32.0},    {"beta_fast", 32.0},
                     {"beta_slow", 1.0},    {"truncate", false}, {"original_max_position_embeddings", 4096}};
  read_positions(keys, {.theta = 150000, .max_position_embeddings = sizes.max_positions, .block = yarn},
                 faults, s);
  read_windows(keys, 2, 128, sizes.layers, s);
  keys.only("hidden_act", {"silu", "swish"});
  keys.only("attention_bias", {true});
  keys.only("swiglu_alpha", {kQuickAlpha});
  keys.alias("num_experts", "num_local_experts");
  const json experts = keys.any("experts_per_token");
  if (!keys.has("num_experts_per_tok") && !experts.is_null() && experts != kDefaultTopk)
    keys.fault("experts_per_token",
               fmt::format("must be {} without num_experts_per_tok, the only key that Transformers reads",
                           kDefaultTopk),
               experts, "write num_experts_per_tok");
  keys.alias("num_experts_per_tok", "experts_per_token");
  const auto length = s.find("yarn_original_max_position_embeddings");
  if (length != s.end()) keys.only("initial_context_length", {std::stoll(length->second)});
  s.merge(Settings{{"activation", "quick-geglu"},
                   {"glu_linear_offset", "1"},
                   {"activation_func_clamp_value", text(keys.real("swiglu_limit", 7))},
                   {"add_bias_linear", "true"},
                   {"softmax_type", "learnable"},
                   {"num_experts", text(keys.integer("num_experts", 128, 1, kMostExperts))},
                   {"moe_router_topk", text(read_topk(keys, kDefaultTopk, true))},
                   {"moe_router_score_function", "softmax"},
                   {"moe_router_pre_softmax", "false"},
                   {"moe_ffn_hidden_size", text(sizes.intermediate)},
                   {"moe_layer_freq", "1"}});
}

/// Gemma 2, and the text model of Gemma 3.
void read_gemma(ReadContext r, bool third) {
  auto& [keys, faults, s] = r;
  SizeDefaults defaults = {256000, 2304, 9216, 26, 8, 4, 8192, 256, 1e-6, true};
  if (third) defaults.vocab_size = 262208;
  if (third) defaults.max_position_embeddings = 131072;
  const Sizes sizes = read_sizes(keys, defaults, s);
  if (std::stoll(s["hidden_size"]) % sizes.heads != 0)
    keys.fault("hidden_size", "must be a multiple of num_attention_heads in a Gemma", json(s["hidden_size"]));
  for (const char* key : {"hidden_activation", "hidden_act"}) keys.only(key, {"gelu_pytorch_tanh"});
  s.merge(Settings{{"activation", "geglu-tanh"},
                   {"add_bias_linear", "false"},
                   {"layernorm_zero_centered_gamma", "true"},
                   {"sandwich_norm", "true"},
                   {"scale_embeddings", "true"},
                   {"query_pre_attn_scalar", text(keys.real("query_pre_attn_scalar", 256))}});
  const auto cap = [&given = keys](const char* key, std::optional<double> default_value) {
    return text(given.real_or_null(key, default_value, {.least = 1e-6}).value_or(0));
  };
  s["final_logit_softcapping"] = cap("final_logit_softcapping", third ? std::nullopt : std::optional(30.0));
  // Only files without layer_types use the pattern; newer ones keep it under a name that nothing reads.
  const std::int64_t pattern = third ? keys.integer("sliding_window_pattern", 6) : 2;
  if (keys.any("layer_types").is_null()) keys.only("_sliding_window_pattern", {pattern});
  static constexpr std::string_view kPattern[] = {"_sliding_window_pattern"};
  keys.ignore(kPattern);
  const bool windows = read_windows(keys, pattern, 4096, sizes.layers, s);
  RopeDefaults rope = {.theta = third ? 1e6 : 1e4, .max_position_embeddings = sizes.max_positions};
  rope.by_kind = third;
  if (third) {
    s["qk_layernorm"] = "true";
    keys.only("attn_logit_softcapping", {});  // Transformers reads it and does not apply it
    return read_gemma3_positions(keys, rope, windows, faults, s);
  }
  s["attn_logit_softcapping"] = cap("attn_logit_softcapping", 50);
  read_positions(keys, rope, faults, s);
}

void read_family(const std::string& type, ReadContext r, const std::vector<std::string>& tensors) {
  if (type == "gpt2") return read_gpt2(r.keys, r.settings);
  if (type == "t5") return read_t5(r.keys, r.settings);
  if (type == "bert") return read_bert(r.keys, tensors, r.settings);
  if (type == "gpt_oss") return read_gpt_oss(r);
  if (type == "gemma2" || type == "gemma3_text") return read_gemma(r, type == "gemma3_text");
  if (const LlamaLike* family = find_llama_like(type)) return read_llama_like(*family, r);
  r.faults.add(
      "model_type must be one of llama, mistral, qwen2, qwen3, mixtral, qwen3_moe, deepseek_v3, gpt_oss, "
      "gemma2, gemma3_text, gpt2, t5, bert",
      type.empty() ? "none" : type,
      r.keys.has("text_config") ? "save the text model that text_config describes as a folder of its own"
                                : Faults::kConvert);
  r.faults.require_none();
}

/// A fault if the values, each valid alone, describe a model that no family can express.
void require_family(const Settings& settings, const std::string& type, const std::string& source,
                    Faults& faults) {
  config::Run run;
  config::fill(run, settings, source);
  config::derive(run);
  if (family_of(run.model)) return;
  faults.add("the values together must describe a model that the class of model_type supports",
             fmt::format("model_type {} with values that no supported family has", type));
  faults.require_none();
}

}  // namespace

std::string model_type_of(const json& config) {
  if (!config.is_object()) return "";
  const auto type = config.find("model_type");
  return type != config.end() && type->is_string() ? type->get<std::string>() : "";
}

Settings settings_of(const json& config, const std::string& source, const std::vector<std::string>& tensors) {
  Faults faults(source);
  if (!config.is_object()) {
    faults.add("content must be a JSON object", config.type_name());
    faults.require_none();
  }
  Keys keys(config, "", faults);
  Settings settings;
  const std::string type = keys.word("model_type", "");
  read_family(type, {keys, faults, settings}, tensors);
  settings["model"] = type == "t5" || type == "bert" ? type : "gpt";
  require_architecture(keys, type);
  for (const char* key : {"quantization_config", "compression_config"})
    if (const json given = keys.any(key); !given.is_null())
      keys.fault(key, "must be absent: weights are read in bf16, fp16 or fp32", given,
                 "convert the weights to bf16, without the key");
  ignore_neutral_keys(keys);
  keys.reject_unknown();
  faults.require_none();
  require_family(settings, type, source, faults);
  return settings;
}

}  // namespace colonnade::models::hf
