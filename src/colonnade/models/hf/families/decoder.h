// Keys of config.json that most decoders share. Private to models/hf.
#pragma once

#include <optional>

#include "colonnade/models/hf/family.h"
#include "colonnade/models/hf/layers_read.h"
#include "colonnade/models/hf/positions_read.h"

namespace colonnade::models::hf {

/// Layers of Llama, up to what a family adds.
inline constexpr Features kLlamaLayers = {Feature::kRmsNorm, Feature::kSwiglu, Feature::kRotary};

/// Reads sizes, rotary positions with the default base `theta`, and the settings of kLlamaLayers.
Sizes read_decoder(const ReadContext& r, const SizeDefaults& defaults, double theta);
/// The same without the activation.
Sizes read_body(const ReadContext& r, const SizeDefaults& defaults, RopeDefaults rope);
/// The same with other defaults of positions; its maximum length is read.
Sizes read_decoder(const ReadContext& r, const SizeDefaults& defaults, RopeDefaults rope);

/// Top k of the router. `over_chosen`: weights are the softmax over the chosen experts, of which a single one
/// always has weight 1.
std::int64_t read_topk(Keys& keys, std::int64_t default_value, bool over_chosen);

/// --moe-layer-freq: layer i has experts unless it is in mlp_only_layers or i + 1 is no multiple of
/// decoder_sparse_step.
std::string read_layer_freq(Keys& keys, std::int64_t layers);

/// --moe-layer-freq of `dense` layers before those with experts.
std::string dense_first(std::int64_t dense, std::int64_t layers);

/// --no-rope-freq of models whose layers without a sliding window have no rotary embedding, after
/// read_windows().
void read_layers_without_rope(std::int64_t layers, Settings& settings);
/// Whether those layers have a rotary embedding that have a window; without windows, whether all do.
bool rotates_windowed_layers(const config::Model& model);

/// Keys of Llama's config.json that other decoders share.
nlohmann::json decoder_config(const config::Model& model);

/// layer_types, by the windows of the layers.
nlohmann::json layer_types(const config::Model& model);
/// sliding_window, null without one. Transformers' window includes the token itself.
nlohmann::json sliding_window(const config::Model& model);
/// sliding_window for classes that require one; their layer_types select the layers.
nlohmann::json required_window(const config::Model& model, std::int64_t default_value);
/// Layers without experts.
nlohmann::json dense_layers(const config::Model& model);

/// LlamaConfig and Gemma's require hidden_size % num_attention_heads == 0, whatever head_dim is.
bool has_whole_heads(const config::Model& model);
/// Whether heads together have the width of the hidden state.
bool has_square_heads(const config::Model& model);

}  // namespace colonnade::models::hf
