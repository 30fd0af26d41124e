// Which layers are of a kind, as Megatron's flags say it: a number or a list in Python's words.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace colonnade::config {

/// The numbers that a list expression of Python's stands for: "[0]*3+[1]*58", "([1,0]*4)", "[1,0]".
/// Nothing when it is not one, or longer than a million.
std::optional<std::vector<std::int64_t>> read_list(std::string_view text);

/// --moe-layer-freq for `layers` layers: N makes each N-th layer one with experts, beginning with the first;
/// a list says 1 or 0 for each. Nothing when it is neither, or of another length.
/// Source: Megatron's core/models/gpt/gpt_layer_specs.py.
std::optional<std::vector<bool>> layers_of_kind(std::string_view text, std::int64_t layers);

/// --window-attn-skip-freq for `layers` layers: N makes all layers of a kind but each N-th one; a list says 1
/// or 0 for each. Nothing as above. Source: Megatron's core/transformer/utils.py.
std::optional<std::vector<bool>> layers_but_each(std::string_view text, std::int64_t layers);

}  // namespace colonnade::config
