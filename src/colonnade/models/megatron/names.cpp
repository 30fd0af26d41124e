// See names.h.
#include "colonnade/models/megatron/names.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "colonnade/base/error.h"
#include "colonnade/layout/layer_kind.h"

namespace colonnade::models::megatron {
namespace {

/// Ends of our names and the ends that Megatron has in their place, in the order of names_of. {} stands for
/// weight and bias.
struct Renamed {
  std::string_view ours;
  std::vector<std::string_view> theirs;
};

const std::vector<Renamed>& renamed() {
  static const std::vector<Renamed> kAll = {
      {".input_layernorm.", {".self_attention.linear_qkv.layer_norm_", ".input_layernorm."}},
      {".pre_mlp_layernorm.", {".mlp.linear_fc1.layer_norm_", ".pre_mlp_layernorm."}},
      {".self_attention.q_layernorm.",
       {".self_attention.linear_q_up_proj.layer_norm_", ".self_attention.q_layernorm."}},
      {".self_attention.kv_layernorm.",
       {".self_attention.linear_kv_up_proj.layer_norm_", ".self_attention.kv_layernorm."}},
      {".post_attention_layernorm.",
       {".self_attention.linear_proj.post_layernorm.", ".post_attention_layernorm.",
        ".post_self_attn_layernorm."}},
      {".post_mlp_layernorm.", {".mlp.linear_fc2.post_layernorm.", ".post_mlp_layernorm."}},
      {".mlp.experts.linear_fc1.", {".mlp.experts.experts.linear_fc1."}},
      {".mlp.experts.linear_fc2.", {".mlp.experts.experts.linear_fc2."}},
  };
  return kAll;
}

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
}

/// The segment of a fused matrix with a role; zero-sized when there is none.
struct Segment {
  std::int64_t first = 0, size = 0;
};
Segment segment_of(const layout::ShardedDim& dim, std::string_view role) {
  std::int64_t first = 0;
  for (const layout::DimSegment& segment : dim.segments) {
    if (segment.role == role) return {first, segment.size};
    first += segment.size;
  }
  return {};
}

/// Rows of groups of the segments `roles`, one after another: our order by segment, theirs by group.
std::vector<Rows> by_group(const layout::ShardedDim& dim, std::initializer_list<std::string_view> roles,
                           std::int64_t groups) {
  std::vector<Rows> rows;
  std::int64_t theirs = 0;
  for (std::int64_t group = 0; group < groups; ++group)
    for (const std::string_view role : roles) {
      const Segment segment = segment_of(dim, role);
      const std::int64_t count = segment.size / groups;
      if (count == 0) continue;
      rows.push_back({segment.first + group * count, theirs, count});
      theirs += count;
    }
  return rows;
}

/// Our quick-geglu alternates gate and up rows, as published checkpoints do; Megatron's gate precedes its up.
std::vector<Rows> alternating(std::int64_t size) {
  std::vector<Rows> rows;
  for (std::int64_t i = 0; i < size / 2; ++i) rows.push_back({2 * i, i, 1});
  for (std::int64_t i = 0; i < size / 2; ++i) rows.push_back({2 * i + 1, size / 2 + i, 1});
  return rows;
}

}  // namespace

std::vector<std::string> names_of(const layout::ParamSpec& spec) {
  for (const Renamed& row : renamed()) {
    const auto at = spec.name.find(row.ours);
    if (at == std::string::npos) continue;
    std::vector<std::string> names;
    for (const std::string_view theirs : row.theirs)
      names.push_back(spec.name.substr(0, at) + std::string(theirs) + spec.name.substr(at + row.ours.size()));
    return names;
  }
  return {spec.name};
}

int row_dim(const layout::ParamSpec& spec) {
  return spec.param_group == layout::ParamGroup::kExpert && spec.shape.size() > 1 ? 1 : 0;
}

std::vector<Rows> row_order(const layout::ParamSpec& spec, const config::Model& model) {
  if (spec.shape.empty()) return {};
  const int dim = row_dim(spec);
  const std::int64_t size = spec.shape[static_cast<std::size_t>(dim)];
  const auto sharded = std::ranges::find(spec.sharded_dims, dim, &layout::ShardedDim::dim);
  if (sharded != spec.sharded_dims.end()) {
    if (ends_with_any(spec.name, {".linear_qkv.weight", ".linear_qkv.bias"}))
      return by_group(*sharded, {"q", "gate", "k", "v"}, model.num_query_groups);
    if (ends_with_any(spec.name, {".linear_kv.weight", ".linear_kv.bias"}))
      return by_group(*sharded, {"k", "v"}, model.num_attention_heads);
  }
  if (model.activation == config::Activation::kQuickGeglu &&
      ends_with_any(spec.name, {"linear_fc1.weight", "linear_fc1.bias"}))
    return alternating(size);
  return {{0, 0, size}};
}

bool has_stacked_layers(const config::Model& model) {
  const std::vector<layout::LayerKind> kinds = layout::layer_kinds(model);
  return std::ranges::all_of(kinds, [&](const layout::LayerKind& kind) {
    return kind.is_moe() == kinds.front().is_moe() && kind.mixer == kinds.front().mixer;
  });
}

std::string written_name(const layout::ParamSpec& spec, const config::Model& model, bool stacked) {
  const std::vector<std::string> names = names_of(spec);
  std::string name = names.front();
  // Norms that Transformer Engine fuses into the next linear layer have that layer's name; others keep their
  // own.
  const bool latent_norm = spec.name.find(".self_attention.q_layernorm.") != std::string::npos ||
                           spec.name.find(".self_attention.kv_layernorm.") != std::string::npos;
  const bool input_norm = spec.name.find(".input_layernorm.") != std::string::npos;
  const bool mlp_norm = spec.name.find(".pre_mlp_layernorm.") != std::string::npos;
  const bool is_moe = [&] {
    if (!mlp_norm || model.moe.num_experts == 0) return false;
    if (spec.name.starts_with("mtp.")) return true;
    const auto begin = spec.name.find(".layers.") + std::string_view(".layers.").size();
    return layout::layer_kind(model, std::stoll(spec.name.substr(begin))).is_moe();
  }();
  if ((latent_norm && !model.latent.enabled) || (input_norm && model.latent.enabled) || (mlp_norm && is_moe))
    name = names.at(1);
  if (!stacked) return name;
  for (const std::string_view stack : {"decoder.layers.", "encoder.layers."})
    if (name.starts_with(stack))
      return name.erase(stack.size(), name.find('.', stack.size()) + 1 - stack.size());
  return name;
}

Split split_of(const std::string& name, bool gated) {
  if (ends_with_any(name, {"linear_fc1.weight", "linear_fc1.bias"}))
    return gated ? Split::kGatedRows : Split::kRows;
  if (ends_with_any(name, {"linear_proj.weight", "linear_fc2.weight"})) return Split::kColumns;
  constexpr std::array kModules = {"linear_qkv.",    "linear_q.",         "linear_kv.",
                                   "linear_q_proj.", "linear_q_up_proj.", "linear_kv_up_proj.",
                                   "output_layer.",  "word_embeddings.",  "softmax_offset"};
  const bool divided = std::ranges::any_of(
      kModules, [&](const char* module) { return name.find(module) != std::string::npos; });
  const bool norm = name.find("layer_norm_") != std::string::npos;
  return divided && !norm ? Split::kRows : Split::kNone;
}

}  // namespace colonnade::models::megatron
