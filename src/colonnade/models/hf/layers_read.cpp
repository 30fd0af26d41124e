// See layers_read.h.
#include "colonnade/models/hf/layers_read.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace colonnade::models::hf {

using nlohmann::json;

namespace {

/// layer_types with one entry per layer; null if missing.
json layer_types_of(Keys& keys, std::int64_t layers) {
  json types = keys.any("layer_types");
  if (types.is_null()) return types;
  if (types.is_array() && static_cast<std::int64_t>(types.size()) == layers) return types;
  keys.fault("layer_types", fmt::format("must be a list with one entry for each of {} layers", layers), types,
             "correct the file");
  return {};
}

}  // namespace

Sizes read_sizes(Keys& keys, const SizeDefaults& d, Settings& s) {
  Sizes sizes;
  sizes.layers = keys.integer("num_hidden_layers", d.num_hidden_layers, 1, kMostLayers);
  sizes.heads = keys.integer("num_attention_heads", d.num_attention_heads);
  sizes.intermediate = keys.integer("intermediate_size", d.intermediate_size);
  sizes.max_positions = keys.integer("max_position_embeddings", d.max_position_embeddings);
  const std::int64_t hidden = keys.integer("hidden_size", d.hidden_size);
  const auto head = keys.integer_or_null("head_dim", d.head_dim);
  if (!head && hidden % sizes.heads != 0)
    keys.fault("hidden_size", "must be a multiple of num_attention_heads without head_dim",
               json::array({hidden, sizes.heads}), "correct the file");
  s["num_layers"] = text(sizes.layers);
  s["hidden_size"] = text(hidden);
  s["ffn_hidden_size"] = text(sizes.intermediate);
  s["num_attention_heads"] = text(sizes.heads);
  s["num_query_groups"] =
      text(keys.integer_or_null("num_key_value_heads", d.num_key_value_heads).value_or(sizes.heads));
  s["kv_channels"] = text(head.value_or(hidden / sizes.heads));
  s["vocab_size"] = text(keys.integer("vocab_size", d.vocab_size));
  s["max_position_embeddings"] = text(sizes.max_positions);
  s["init_method_std"] = text(keys.real("initializer_range", 0.02));
  s["normalization"] = "RMSNorm";
  s["layernorm_epsilon"] = text(keys.real("rms_norm_eps", d.rms_norm_eps, {.least = 0, .most = 1}));
  s["untie_embeddings_and_output_weights"] = text(!keys.flag("tie_word_embeddings", d.tie_word_embeddings));
  // These classes have attention dropout only.
  s["attention_dropout"] =
      text(keys.real_or_null("attention_dropout", 0, {.least = 0, .most = 1}).value_or(0));
  s["hidden_dropout"] = "0";
  return sizes;
}

void require_layer_types(Keys& keys, const char* kind, std::int64_t layers) {
  for (const json& type : layer_types_of(keys, layers))
    if (type != kind) return keys.fault("layer_types", fmt::format("must be {} in all layers", kind), type);
}

void read_window_everywhere(Keys& keys, std::optional<std::int64_t> default_value, std::int64_t layers,
                            Settings& s) {
  const auto window = keys.integer_or_null("sliding_window", default_value, 2);
  require_layer_types(keys, window ? "sliding_attention" : "full_attention", layers);
  keys.only("use_sliding_window", {window.has_value()});
  if (window) s["window_size"] = fmt::format("{},0", *window - 1);
}

bool read_windows(Keys& keys, std::int64_t pattern, std::int64_t default_value, std::int64_t layers,
                  Settings& s) {
  const json types = layer_types_of(keys, layers);
  std::vector<int> windows;
  for (std::int64_t i = 0; i < layers; ++i) {
    const json type = types.is_null() ? json() : types[static_cast<std::size_t>(i)];
    if (!type.is_null() && type != "full_attention" && type != "sliding_attention") {
      keys.fault("layer_types", "must be full_attention or sliding_attention", type);
      break;
    }
    windows.push_back(type.is_null() ? (i + 1) % pattern != 0 : type == "sliding_attention");
  }
  const bool any = std::ranges::count(windows, 1) > 0;
  keys.alias("sliding_window", "sliding_window_size");  // early Gemma 2 files
  const auto window = keys.integer_or_null("sliding_window", default_value, 2);
  if (!any) return false;
  if (!window) keys.fault("sliding_window", "must be a number: some layers have a window", json());
  s["window_size"] = fmt::format("{},0", window.value_or(default_value) - 1);
  if (std::ranges::count(windows, 0) > 0)
    s["window_attn_skip_freq"] = fmt::format("[{}]", fmt::join(windows, ","));
  return true;
}

void reject_qwen_windows(Keys& keys, bool in_all_layers, std::int64_t layers) {
  const json types = layer_types_of(keys, layers);
  const bool used = keys.flag("use_sliding_window", false);
  const auto window = keys.integer_or_null("sliding_window", 4096, 0);
  std::int64_t first = keys.integer("max_window_layers", 28, 0);
  for (const json& type : types)
    if (type != "full_attention")
      return keys.fault("layer_types",
                        "must be full_attention: sliding windows of Qwen models are not supported", type);
  if (!used || !window) return;
  if (in_all_layers) first = 0;
  if (!in_all_layers && !types.is_null()) first = layers;
  if (first < layers)
    keys.fault("use_sliding_window", "must be false: sliding windows of Qwen models are not supported",
               json(fmt::format("true from layer {} on", first)));
}

}  // namespace colonnade::models::hf
