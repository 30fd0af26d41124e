// Per-layer patterns of Megatron's flags: a frequency or a Python list expression.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace colonnade::config {

/// Value of a Python list expression: "[0]*3+[1]*58", "([1,0]*4)", "[1,0]". Empty if malformed or longer than
/// a million.
std::optional<std::vector<std::int64_t>> parse_int_list(std::string_view text);

/// A layer frequency as a mask over `layers` layers: N selects every N-th layer, starting with the first; a
/// list has 1 or 0 per layer. Empty if it is malformed or has another length. Source: Megatron's
/// core/models/gpt/gpt_layer_specs.py.
std::optional<std::vector<bool>> expand_layer_freq(std::string_view text, std::int64_t layers);

/// --window-attn-skip-freq as a mask over `layers` layers: N selects all layers but every N-th; a list has 1
/// or 0 per layer. Empty as above. Source: Megatron's core/transformer/utils.py.
std::optional<std::vector<bool>> expand_skip_freq(std::string_view text, std::int64_t layers);

/// --no-rope-freq as a mask of the layers with RoPE: N leaves out every N-th layer; a list has 1 for layers
/// without. Empty as above, and if N does not divide the layers. Source: Megatron's
/// core/transformer/transformer_config.py.
std::optional<std::vector<bool>> expand_no_rope_freq(std::string_view text, std::int64_t layers);

/// Numbers of a list "[1.0, 1.25]"; empty if malformed.
std::optional<std::vector<double>> parse_numbers(std::string_view text);

}  // namespace colonnade::config
