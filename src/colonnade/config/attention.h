// Sizes and rotary embedding of self-attention, from the settings of all kinds of attention.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "colonnade/config/run.h"

namespace colonnade::config {

/// Fills unset fields: kv_channels, hidden / heads, and num_query_groups, heads. Multi-latent attention has a
/// head size of its own and RoPE in any case: YaRN unless --rope-type is rope; a note reports --kv-channels.
/// Source: Megatron's MLATransformerConfig.
void derive_attention(Run& run);

/// Completes the model `settings` of a checkpoint, by key, before they join `run`. Multi-latent attention in
/// step folders without rope_type is older than the setting: position_embedding_type named the rotary
/// embedding, and frequencies were scaled as in other attention. Throws ConfigError, naming `folder`, for
/// scaled ones, which it no longer supports.
void complete_attention(const Run& run, std::map<std::string, std::string>& settings,
                        const std::string& folder);

/// Rotary embedding of self-attention, if Model::has_rotary().
struct Rotary {
  /// Selected by --position-embedding-type. Otherwise --rope-type selects it, and neither linear nor Llama 3
  /// scaling applies.
  bool from_position_embedding;
  std::int64_t channels;  ///< channels of a head; --rotary-percent of them rotate (Model::rotary_channels)
  bool interleaved;       ///< pairs (2i, 2i + 1) rotate, otherwise (i, i + d_rot / 2)
};
Rotary rotary_of(const Model& model);

}  // namespace colonnade::config
