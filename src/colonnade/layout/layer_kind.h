// Kind of each transformer layer: its mixer and its channel mixer, chosen by the settings' layer patterns.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>
#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/layout/param.h"

namespace colonnade::layout {

/// Mixes tokens.
enum class Mixer : std::uint8_t { kAttention, kLatentAttention };
/// Mixes the channels of each token.
enum class ChannelMixer : std::uint8_t { kMlp, kMoe };

/// A layer is a mixer, in a second stack (config::stacks) cross-attention to the first one, and a channel
/// mixer, each with a norm and a residual connection of its own.
struct LayerKind {
  Mixer mixer = Mixer::kAttention;
  bool cross_attention = false;
  ChannelMixer channel_mixer = ChannelMixer::kMlp;
  [[nodiscard]] bool is_moe() const { return channel_mixer == ChannelMixer::kMoe; }
  auto operator<=>(const LayerKind&) const = default;
};

/// Kinds of all layers by global number. Throws Error for an invalid --moe-layer-freq, which
/// rules::check reports before.
std::vector<LayerKind> layer_kinds(const config::Model& model);

/// Parameter groups of a model by its settings, kDense first; layer patterns may leave one without
/// parameters.
std::vector<ParamGroup> param_groups(const config::Model& model);

/// Whether layers route each token to a part of their weights, by the settings.
bool routes_tokens(const config::Model& model);

/// Whether routers sum their token counts over all ranks that hold tokens of a step.
bool sums_router_counts(const config::Model& model);

/// Tokens that ranks at `rank` of the ep axis receive relative to the mean, as plans and dry runs assume;
/// `ranks`: size of the axis.
double assumed_load(const config::Model& model, int rank, int ranks);

/// Whether layers dispatch tokens to the ranks of a group (ep x etp), which may belong to other data-parallel
/// replicas, so that all of these must run equally many micro-batches.
bool dispatches_tokens(const config::Model& model, const config::Parallel& parallel);

/// Kind of `layer` (global number). Numbers beyond the last layer (MTP layers) have the last layer's kind.
LayerKind layer_kind(const config::Model& model, std::int64_t layer);

/// Whether a layer of the model has the module of this name (config::kRecomputeModules).
bool has_module(const config::Model& model, std::string_view module);

/// Whether `layer` has bidirectional attention.
bool is_bidirectional(const config::Model& model, std::int64_t layer);

/// Sliding window of `layer` in earlier tokens; 0: no window. Throws Error for an invalid
/// --window-attn-skip-freq, which rules::check reports before.
std::int64_t attention_window(const config::Model& model, std::int64_t layer);

/// Whether self-attention of `layer` has a rotary embedding (--no-rope-freq). Numbers beyond the last layer
/// have the last layer's. Throws Error for an invalid pattern, which rules::check reports before.
bool has_rope(const config::Model& model, std::int64_t layer);

}  // namespace colonnade::layout
