// See gemma.h.
#include "colonnade/models/hf/families/gemma.h"

#include <cmath>

namespace colonnade::models::hf {

using nlohmann::json;

std::string read_cap(Keys& keys, const char* key, std::optional<double> default_value) {
  return text(keys.real_or_null(key, default_value, {.least = 1e-6}).value_or(0));
}

GemmaLayers read_gemma(const ReadContext& r, const GemmaKeys& of) {
  auto& [type, keys, faults, s, tensors] = r;
  GemmaLayers layers{.sizes = read_sizes(keys, of.sizes, s)};
  if (std::stoll(s["hidden_size"]) % layers.sizes.heads != 0)
    keys.fault("hidden_size", "must be a multiple of num_attention_heads in a Gemma", json(s["hidden_size"]));
  for (const char* key : {"hidden_activation", "hidden_act"}) keys.only(key, {"gelu_pytorch_tanh"});
  s.merge(Settings{{"activation", "geglu-tanh"},
                   {"add_bias_linear", "false"},
                   {"layernorm_zero_centered_gamma", "true"},
                   {"sandwich_norm", "true"},
                   {"scale_embeddings", "true"},
                   {"query_pre_attn_scalar", text(keys.real("query_pre_attn_scalar", 256))}});
  s["final_logit_softcapping"] = read_cap(keys, "final_logit_softcapping", of.default_logit_cap);
  // Only files without layer_types use the pattern; newer ones keep it under a name that nothing reads.
  if (keys.any("layer_types").is_null()) keys.only("_sliding_window_pattern", {of.window_pattern});
  static constexpr std::string_view kPattern[] = {"_sliding_window_pattern"};
  keys.ignore(kPattern);
  layers.windows = read_windows(keys, of.window_pattern, 4096, layers.sizes.layers, s);
  return layers;
}

json gemma_config(const config::Model& m) {
  const auto cap = [](double at) { return at > 0 ? json(at) : json(); };
  json c = decoder_config(m);
  c.update({{"attention_bias", false},
            {"hidden_act", "gelu_pytorch_tanh"},
            {"hidden_activation", "gelu_pytorch_tanh"},
            {"sliding_window", required_window(m, 4096)},
            {"layer_types", layer_types(m)},
            {"query_pre_attn_scalar", static_cast<std::int64_t>(*m.query_pre_attn_scalar)},
            {"attn_logit_softcapping", cap(m.attn_logit_softcapping)},
            {"final_logit_softcapping", cap(m.final_logit_softcapping)}});
  return c;
}

bool has_gemma_sizes(const config::Model& m) {
  return std::floor(*m.query_pre_attn_scalar) == *m.query_pre_attn_scalar && has_whole_heads(m);
}

}  // namespace colonnade::models::hf
