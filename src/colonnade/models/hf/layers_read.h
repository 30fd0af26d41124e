// Decoder sizes and sliding-window layers in config.json. Private to models/hf.
#pragma once

#include "colonnade/models/hf/keys.h"

namespace colonnade::models::hf {

/// Defaults of a configuration class, by the key names of all classes but GPT-2's, T5's and BERT's.
struct SizeDefaults {
  std::int64_t vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads;
  std::optional<std::int64_t> num_key_value_heads;  ///< nothing: num_attention_heads
  std::int64_t max_position_embeddings;
  std::optional<std::int64_t> head_dim;  ///< nothing: hidden_size / heads
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;
};

/// Sizes that later steps need.
struct Sizes {
  std::int64_t layers = 0, heads = 0, intermediate = 0, max_positions = 0;
};

/// Reads sizes, norm epsilon, initializer range, tied embeddings and dropout.
Sizes read_sizes(Keys& keys, const SizeDefaults& defaults, Settings& settings);

/// A fault unless layer_types, if given, is `kind` for all layers.
void require_layer_types(Keys& keys, const char* kind, std::int64_t layers);

/// A sliding window in every layer (Mistral, Mixtral).
void read_window_everywhere(Keys& keys, std::optional<std::int64_t> default_value, std::int64_t layers,
                            Settings& settings);

/// Sliding windows in the layers that layer_types marks sliding_attention; without it, in all but every
/// `pattern`-th. `default_value`: default of sliding_window. Returns whether any layer has a window.
bool read_windows(Keys& keys, std::int64_t pattern, std::int64_t default_value, std::int64_t layers,
                  Settings& settings);

/// A fault for Qwen models with sliding windows: in the layers from max_window_layers on or marked by
/// layer_types (`in_all_layers`: all).
void reject_qwen_windows(Keys& keys, bool in_all_layers, std::int64_t layers);

}  // namespace colonnade::models::hf
