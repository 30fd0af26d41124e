// See names.h.
#include "colonnade/models/hf/names.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <set>
#include <string_view>

#include "colonnade/base/error.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {
namespace {

/// "decoder.layers.12.mlp..." -> ("decoder.layers.{}.mlp...", "12"); MTP layers are
/// numbered after the `layers` of the model.
std::pair<std::string, std::string> without_number(const std::string& name, std::int64_t layers) {
  for (const std::string_view prefix : {"decoder.layers.", "encoder.layers.", "mtp.layers."}) {
    if (!name.starts_with(prefix)) continue;
    const auto dot = name.find('.', prefix.size());
    const auto number = std::stoll(name.substr(prefix.size(), dot - prefix.size()));
    const bool mtp = prefix.front() == 'm';
    return {std::string(prefix) + "{}" + name.substr(dot), std::to_string(number + (mtp ? layers : 0))};
  }
  return {name, ""};
}

/// `pattern` with `numbers` in place of its {}, in order.
std::string with_numbers(std::string_view pattern, std::initializer_list<std::string> numbers) {
  std::string name(pattern);
  for (const std::string& number : numbers) {
    const auto at = name.find("{}");
    if (at != std::string::npos) name.replace(at, 2, number);
  }
  return name;
}

/// The row of `name`; of several the one with a tensor for each piece of the parameter.
const Row* find_row(const Table& table, const std::string& name, const layout::ParamSpec& spec) {
  std::size_t pieces = 1;
  for (const layout::ShardedDim& dim : spec.sharded_dims) pieces = std::max(pieces, dim.segments.size());
  const Row* found = nullptr;
  for (const Row& row : table) {
    if (row.ours != name) continue;
    if (row.theirs.size() == pieces) return &row;
    if (found == nullptr) found = &row;
  }
  return found;
}

/// Rows of dimension `dim` per tensor: those of each fused segment, or all for a single tensor.
std::vector<std::int64_t> rows_of(const layout::ParamSpec& spec, std::size_t dim, std::size_t tensors) {
  if (tensors == 1) return {dim < spec.shape.size() ? spec.shape[dim] : 1};
  const auto sharded = std::ranges::find(spec.sharded_dims, static_cast<int>(dim), &layout::ShardedDim::dim);
  COL_CHECK(sharded != spec.sharded_dims.end() && sharded->segments.size() == tensors,
            "{}: its segments must match the {} tensors of the name table; got another number", spec.name,
            tensors);
  std::vector<std::int64_t> rows;
  for (const layout::DimSegment& segment : sharded->segments) rows.push_back(segment.size);
  return rows;
}

/// Tensors of all families that do not affect the output.
constexpr UnusedTensor kUnusedTensors[] = {{"", "rotary_emb.inv_freq", kBuffers},
                                           {"", "rotary_emb.cos_cached", kBuffers},
                                           {"", "rotary_emb.sin_cached", kBuffers},
                                           {"score.", "", kHeads},
                                           {"qa_outputs.", "", kHeads},
                                           {"classifier.", "", kHeads},
                                           {"v_head.", "", kHeads}};

/// Kind of a tensor that does not affect the output of a `family` model; "" for others.
std::string_view unused_kind(const std::string& name, const Family* family) {
  const auto matches = [&](const UnusedTensor& row) {
    return name.starts_with(row.begin) && name.ends_with(row.end);
  };
  for (const UnusedTensor& row : kUnusedTensors)
    if (matches(row)) return row.what;
  if (family == nullptr) return "";
  for (const UnusedTensor& row : family->unused)
    if (matches(row)) return row.what;
  return "";
}

/// Embedding or output table duplicated in an MTP layer; nothing for other tensors.
std::optional<Copy> copy_in_mtp_layer(const std::string& name) {
  if (name.ends_with(".embed_tokens.weight")) return Copy{name, "model.embed_tokens.weight"};
  if (name.ends_with(".shared_head.head.weight")) return Copy{name, "lm_head.weight"};
  return std::nullopt;
}

/// 0-based index of the MTP layer that `name` belongs to; negative for other tensors.
std::int64_t mtp_layer_of(const std::string& name, const config::Model& m) {
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return -1;
  return std::strtoll(name.c_str() + kLayers.size(), nullptr, 10) - m.num_layers;
}

}  // namespace

const Family* family_of(const config::Model& m) {
  const Features features = features_of(m);
  if (features.count(kAllRopeScalings) > 1) return nullptr;
  for (const Family* family : all_families())
    if (features.contains(family->has) && (family->has | family->may_have).contains(features) &&
        (family->also == nullptr || family->also(m)))
      return family;
  return nullptr;
}

const Family* family_of_type(std::string_view model_type) {
  for (const Family* family : all_families())
    if (std::ranges::find(family->types, model_type, &ModelType::name) != family->types.end()) return family;
  return nullptr;
}

std::optional<Naming> naming_of(const config::Model& model) {
  const Family* family = family_of(model);
  return family ? std::optional<Naming>(Naming{family, model.num_layers}) : std::nullopt;
}

std::vector<StoredTensor> tensors_of(const layout::ParamSpec& spec, std::optional<Naming> naming) {
  if (!naming) return {{spec.name, 0, rows_of(spec, 0, 1)[0]}};
  auto [pattern, layer] = without_number(spec.name, naming->layers);
  const Table& table = naming->family->names;
  const Row* row = find_row(table, spec.name, spec);
  if (row == nullptr) row = find_row(table, pattern, spec);
  COL_CHECK(row != nullptr, "{}: the family's name table must hold every parameter; got no row for it",
            spec.name);
  if (row->of_layer_before) layer = std::to_string((layer.empty() ? naming->layers : std::stoll(layer)) - 1);
  // A tensor for each index of dimension 0 has its rows in the next one.
  const bool stacked = row->theirs[0].find("{}") != row->theirs[0].rfind("{}");
  const auto rows = rows_of(spec, stacked ? 1 : 0, row->theirs.size());
  std::vector<StoredTensor> tensors;
  for (std::int64_t expert = 0; expert < (stacked ? spec.shape[0] : 1); ++expert) {
    std::int64_t first = 0;
    for (std::size_t i = 0; i < rows.size(); first += rows[i++])
      tensors.push_back({.name = with_numbers(row->theirs[i], {layer, std::to_string(expert)}),
                         .first_row = first,
                         .rows = rows[i],
                         .transposed = row->transposed,
                         .index = stacked ? std::optional(expert) : std::nullopt,
                         .has_leading_one = row->has_leading_one});
  }
  return tensors;
}

std::vector<Copy> copies_to_read(const std::string& model_type) {
  std::vector<Copy> copies;
  if (const Family* family = family_of_type(model_type))
    std::ranges::copy_if(family->copies, std::back_inserter(copies), &Copy::is_read);
  return copies;
}

std::vector<Copy> copies_to_save(const config::Model& model) {
  const Family* family = family_of(model);
  if (family == nullptr || !model.untie_embeddings_and_output_weights) return {};
  return copies_to_read(std::string(family->types.front().name));
}

TensorDiff tensor_diff(const config::Model& model, const std::vector<std::string>& names) {
  const auto naming = naming_of(model);
  const Family* family = naming ? naming->family : nullptr;
  std::set<std::string> known;
  for (const layout::ParamSpec& spec : layout::model_params(model, {}))
    for (StoredTensor& tensor : tensors_of(spec, naming)) known.insert(std::move(tensor.name));
  TensorDiff left;
  const std::set<std::string> held(names.begin(), names.end());
  std::ranges::set_difference(known, held, std::back_inserter(left.missing));
  if (family != nullptr)
    for (const Copy& copy : family->copies)
      if (held.contains(copy.name) && known.insert(copy.name).second) left.copies.push_back(copy);
  if (!model.untie_embeddings_and_output_weights)
    known.insert(family != nullptr ? family->tied.output : "lm_head.weight");
  for (const std::string& name : names) {
    if (known.contains(name)) continue;
    const std::int64_t layer = family && family->numbers_mtp_layers ? mtp_layer_of(name, model) : -1;
    if (layer >= model.mtp_num_layers) {
      left.unused["tensors of layers for multi-token prediction"].push_back(name);
    } else if (const auto copy = layer >= 0 ? copy_in_mtp_layer(name) : std::nullopt) {
      left.copies.push_back(*copy);
    } else if (const std::string_view what = unused_kind(name, family); !what.empty()) {
      left.unused[std::string(what)].push_back(name);
    } else {
      left.unknown.push_back(name);
    }
  }
  return left;
}

}  // namespace colonnade::models::hf
