// Sizes of decoders in config.json, and which layers have a window or experts. Private to models/hf.
#pragma once

#include "colonnade/models/hf/keys.h"

namespace colonnade::models::hf {

/// Defaults of a configuration class, under the names that all classes but GPT-2's, T5's and BERT's share.
struct SizeDefaults {
  std::int64_t vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads;
  std::optional<std::int64_t> num_key_value_heads;  ///< nothing: as many as heads
  std::int64_t max_position_embeddings;
  std::optional<std::int64_t> head_dim;  ///< nothing: hidden_size / heads
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;
};

/// What all of these read alike.
struct Sizes {
  std::int64_t layers = 0, heads = 0, intermediate = 0, max_positions = 0;
};

/// Sizes, norms' epsilon, initial values, tied embeddings and dropout.
Sizes read_sizes(Keys& keys, const SizeDefaults& defaults, Settings& settings);

/// layer_types, where it is given: one kind for all layers.
void require_layer_types(Keys& keys, const char* kind, std::int64_t layers);

/// A window in every layer (sliding_window of Mistral and Mixtral).
void read_window_everywhere(Keys& keys, std::optional<std::int64_t> usual, std::int64_t layers,
                            Settings& settings);

/// Windows of the layers that layer_types calls sliding_attention; without it, of all but each `pattern`-th.
/// `usual` is the default of sliding_window. Whether any layer has a window.
bool read_windows(Keys& keys, std::int64_t pattern, std::int64_t usual, std::int64_t layers,
                  Settings& settings);

/// In a Qwen model the layers from max_window_layers on, or those of layer_types (with experts: all), may
/// have a window. Such models are a fault.
void refuse_qwen_windows(Keys& keys, bool experts, std::int64_t layers);

/// --moe-layer-freq of a model whose layer i has experts when it is not one of mlp_only_layers and i + 1 is a
/// multiple of decoder_sparse_step.
std::string read_layer_freq(Keys& keys, std::int64_t layers);

}  // namespace colonnade::models::hf
