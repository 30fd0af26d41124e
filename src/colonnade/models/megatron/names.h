// Names and row orders of our parameters in Megatron's checkpoints. Sources: megatron/core/transformer/
// transformer_layer.py (sharded_state_dict_keys_map), megatron/core/extensions/transformer_engine.py.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/layout/param.h"

namespace colonnade::models::megatron {

/// Consecutive rows of our parameter that are consecutive rows of Megatron's.
struct Rows {
  std::int64_t ours = 0, theirs = 0, count = 0;
  bool operator==(const Rows&) const = default;
};

/// Names of a parameter in a Megatron checkpoint with numbered layers, of which a checkpoint has one: first
/// that of Transformer Engine modules, then that of Megatron's own. Experts are one tensor [experts, out,
/// in].
std::vector<std::string> names_of(const layout::ParamSpec& spec);

/// The order of our parameter's rows in Megatron's, in dimension row_dim(): Megatron interleaves the queries,
/// gates, keys and values of a query group (linear_qkv) and the keys and values of a head (linear_kv); we
/// store all queries before all keys. Without such an order, one run of all rows.
std::vector<Rows> row_order(const layout::ParamSpec& spec, const config::Model& model);

/// Dimension of row_order: 1 for experts, else 0.
int row_dim(const layout::ParamSpec& spec);

/// The name in a distributed checkpoint of a model of Transformer Engine modules. With `stacked`, layers of
/// the decoder and the encoder share one tensor, whose first dimension is the layer: the number is left out.
std::string written_name(const layout::ParamSpec& spec, const config::Model& model, bool stacked);

/// Whether Megatron stores one tensor for all layers: they are of one kind, and moe_layer_freq is 1.
bool has_stacked_layers(const config::Model& model);

/// How tensor parallelism divides a tensor of Megatron, in Megatron's row order.
enum class Split : std::uint8_t {
  kNone,       ///< each rank holds all of it
  kRows,       ///< a contiguous share of the rows (of dimension row_dim)
  kGatedRows,  ///< a share of the first half of the rows, the gate, and one of the second
  kColumns,    ///< a contiguous share of the last dimension
};
/// `name` as in names_of; `gated`: the model's MLPs have a gate.
Split split_of(const std::string& name, bool gated);

}  // namespace colonnade::models::megatron
