// Shards parameters over ranks.
#include "colonnade/layout/param.h"

#include <algorithm>
#include <numeric>

#include "colonnade/base/error.h"

namespace colonnade::layout {
namespace {

std::int64_t product(const std::vector<std::int64_t>& shape, std::size_t from = 0) {
  return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(from), shape.end(), std::int64_t{1},
                         std::multiplies<>());
}

std::string label(const ParamSpec& spec, const DimSegment& piece) {
  return piece.role.empty() ? spec.name : spec.name + " [" + piece.role + "]";
}

/// Span of a segment on one rank of an axis, along the sharded dimension.
struct AxisShard {
  std::int64_t first = 0;   ///< offset within the segment
  std::int64_t length = 0;  ///< elements without padding
  std::int64_t padded = 0;  ///< local length with padding
  int holders = 1;
  bool owner = true;
};

AxisShard axis_shard(const ParamSpec& spec, const DimSegment& piece, Axis axis, const Position& position) {
  COL_CHECK(piece.unit > 0 && piece.size > 0 && piece.size % piece.unit == 0,
            "{} must consist of whole units; got size {} and unit {}; fix the spec", label(spec, piece),
            piece.size, piece.unit);
  const int coord = position.coord(axis);
  const int size = position.size(axis);
  std::int64_t units = piece.size / piece.unit;
  if (piece.pad_to > 0) {
    const std::int64_t multiple = std::lcm(piece.pad_to, std::int64_t{size});
    units = (units + multiple - 1) / multiple * multiple;
  }
  if (units % size == 0) {
    const std::int64_t padded = units / size * piece.unit;
    const std::int64_t first = std::min(coord * padded, piece.size);
    return {.first = first, .length = std::min(padded, piece.size - first), .padded = padded};
  }
  if (size % units == 0) {
    const int holders = static_cast<int>(size / units);
    return {.first = coord / holders * piece.unit,
            .length = piece.unit,
            .padded = piece.unit,
            .holders = holders,
            .owner = coord % holders == 0};
  }
  throw ConfigError(fmt::format(
      "{} must have a number of units that the {} size divides or is a multiple of; got {} units of {} and "
      "size {}; choose another {} size",
      label(spec, piece), name(axis), units, piece.unit, size, name(axis)));
}

/// Shards every box of `shard` along one more dimension, in which they are still unsharded.
void apply(const ParamSpec& spec, const ShardedDim& sharded, const Position& position, Shard& shard) {
  const auto dim = static_cast<std::size_t>(sharded.dim);
  const auto clashes = [&](const ShardedDim& other) {
    return other.dim == sharded.dim || other.axis == sharded.axis;
  };
  COL_CHECK(
      std::ranges::count_if(spec.sharded_dims, clashes) == 1,
      "{} must be sharded along different dimensions over different axes; got dimension {} over {} twice; "
      "fix the spec",
      spec.name, sharded.dim, name(sharded.axis));
  COL_CHECK(
      dim < spec.shape.size() && model_axes(spec.param_group).has(sharded.axis),
      "{} must be sharded along a dimension of its shape over a model axis of its group; got dimension {} "
      "over {}; fix the spec",
      spec.name, sharded.dim, name(sharded.axis));
  std::vector<ShardBox> parts;
  std::int64_t global = 0;
  std::int64_t local = 0;
  std::vector<std::pair<AxisShard, std::pair<std::int64_t, std::int64_t>>>
      spans;  // with global, local offset
  for (const DimSegment& piece : sharded.segments) {
    const AxisShard held = axis_shard(spec, piece, sharded.axis, position);
    if (held.length > 0) spans.push_back({held, {global + held.first, local}});
    shard.shared = shard.shared || held.holders > 1;
    global += piece.size;
    local += held.padded;
  }
  COL_CHECK(global == spec.shape[dim],
            "{} must have segments that add up to dimension {} of its shape; got {}; fix the spec", spec.name,
            sharded.dim, global);
  for (const ShardBox& before : shard.boxes)
    for (const auto& [held, at] : spans) {
      ShardBox& part = parts.emplace_back(before);
      part.global[dim] = at.first;
      part.local[dim] = at.second;
      part.length[dim] = held.length;
      part.holders *= held.holders;
      part.owner = part.owner && held.owner;
    }
  shard.boxes = std::move(parts);
  shard.shape[dim] = local;
}

}  // namespace

AxisSet model_axes(ParamGroup param_group) {
  return param_group == ParamGroup::kDense ? AxisSet{Axis::kTp} : AxisSet{Axis::kEtp, Axis::kEp};
}
AxisSet data_axes(ParamGroup param_group) {
  return param_group == ParamGroup::kDense ? AxisSet{Axis::kDp, Axis::kCp} : AxisSet{Axis::kEdp};
}

bool is_matrix(const ParamSpec& spec) {
  const bool is_stack = model_axes(spec.param_group).has(Axis::kEp);
  return spec.shape.size() == (is_stack ? 3U : 2U);
}

std::int64_t ParamSpec::numel() const { return product(shape); }
std::int64_t Shard::numel() const { return product(shape); }

const ShardedDim* ParamSpec::sharded_dim(Axis axis) const {
  const auto found = std::ranges::find(sharded_dims, axis, &ShardedDim::axis);
  return found == sharded_dims.end() ? nullptr : &*found;
}

Shard shard(const ParamSpec& spec, const Position& position) {
  const std::vector<std::int64_t> zeros(spec.shape.size(), 0);
  Shard shard{.shape = spec.shape, .boxes = {{.global = zeros, .local = zeros, .length = spec.shape}}};
  for (const Axis axis : {Axis::kTp, Axis::kEtp, Axis::kEp}) {
    if (!model_axes(spec.param_group).has(axis) || spec.sharded_dim(axis) != nullptr) continue;
    shard.boxes[0].holders *= position.size(axis);
    shard.boxes[0].owner = shard.boxes[0].owner && position.coord(axis) == 0;
  }
  for (const ShardedDim& sharded : spec.sharded_dims) apply(spec, sharded, position, shard);
  return shard;
}

void for_each_span(const ParamSpec& spec, const Shard& shard, const ShardBox& part,
                   const std::function<void(const ElementSpan&)>& use) {
  // Dimensions from `inner` on are unsharded.
  std::size_t inner = spec.shape.size();
  while (inner > 0 && shard.shape[inner - 1] == spec.shape[inner - 1] &&
         part.length[inner - 1] == spec.shape[inner - 1])
    --inner;
  if (inner == 0) return use({0, 0, spec.numel()});
  const std::size_t last = inner - 1;
  const std::int64_t row = product(spec.shape, inner);
  std::vector<std::int64_t> at(last, 0);  // index within the box
  for (;;) {
    ElementSpan stretch{0, 0, part.length[last] * row};
    for (std::size_t d = 0; d <= last; ++d) {
      const std::int64_t i = d < last ? at[d] : 0;
      stretch.local = stretch.local * shard.shape[d] + part.local[d] + i;
      stretch.global = stretch.global * spec.shape[d] + part.global[d] + i;
    }
    stretch.local *= row;
    stretch.global *= row;
    use(stretch);
    std::size_t d = last;
    while (d > 0 && ++at[d - 1] == part.length[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

std::vector<LocalSpan> owned(const ParamSpec& spec, const Shard& shard) {
  std::vector<LocalSpan> all;
  for (const ShardBox& part : shard.boxes)
    if (part.owner)
      for_each_span(spec, shard, part, [&](const ElementSpan& s) {
        all.push_back({s.local, s.local + s.length});
      });
  std::ranges::sort(all, {}, &LocalSpan::begin);
  std::vector<LocalSpan> merged;
  for (const LocalSpan& one : all) {
    if (!merged.empty() && merged.back().end == one.begin)
      merged.back().end = one.end;
    else
      merged.push_back(one);
  }
  return merged;
}

}  // namespace colonnade::layout
