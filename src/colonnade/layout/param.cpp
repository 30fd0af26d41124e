// Cuts a parameter into the parts of the ranks.
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

std::string label(const ParamSpec& spec, const Piece& piece) {
  return piece.role.empty() ? spec.name : spec.name + " [" + piece.role + "]";
}

/// What one rank of an axis holds of a piece, along the cut dimension.
struct Held {
  std::int64_t first = 0;   ///< offset within the piece
  std::int64_t length = 0;  ///< true elements
  std::int64_t room = 0;    ///< local length, filling included
  int holders = 1;
  bool owner = true;
};

Held held_of(const ParamSpec& spec, const Piece& piece, Axis axis, const Position& position) {
  COL_CHECK(piece.unit > 0 && piece.size > 0 && piece.size % piece.unit == 0,
            "{}: a piece must be whole units; got size {} and unit {}; correct the placement",
            label(spec, piece), piece.size, piece.unit);
  const int coord = position.coord(axis);
  const int size = position.size(axis);
  std::int64_t units = piece.size / piece.unit;
  if (piece.pad_to > 0) {
    const std::int64_t multiple = std::lcm(piece.pad_to, std::int64_t{size});
    units = (units + multiple - 1) / multiple * multiple;
  }
  if (units % size == 0) {
    const std::int64_t room = units / size * piece.unit;
    const std::int64_t first = std::min(coord * room, piece.size);
    return {.first = first, .length = std::min(room, piece.size - first), .room = room};
  }
  if (size % units == 0) {
    const int holders = static_cast<int>(size / units);
    return {.first = coord / holders * piece.unit,
            .length = piece.unit,
            .room = piece.unit,
            .holders = holders,
            .owner = coord % holders == 0};
  }
  throw ConfigError(fmt::format(
      "{}: its {} units of {} must divide, or be divided by, the {} size; got {}; choose another {} size",
      label(spec, piece), units, piece.unit, name(axis), size, name(axis)));
}

/// Cuts every part of `shard` along one more dimension, which all of them still hold whole.
void apply(const ParamSpec& spec, const Cut& cut, const Position& position, Shard& shard) {
  const auto dim = static_cast<std::size_t>(cut.dim);
  const auto clashes = [&](const Cut& other) { return other.dim == cut.dim || other.axis == cut.axis; };
  COL_CHECK(
      std::ranges::count_if(spec.cuts, clashes) == 1,
      "{}: cuts must be of different dimensions over different axes; got dimension {} over {} beside another; "
      "correct the placement",
      spec.name, cut.dim, name(cut.axis));
  COL_CHECK(
      dim < spec.shape.size() && model_axes(spec.family).has(cut.axis),
      "{}: a cut must name a dimension of its shape and an axis of its family; got dimension {} over {}; "
      "correct the placement",
      spec.name, cut.dim, name(cut.axis));
  std::vector<Part> parts;
  std::int64_t global = 0;
  std::int64_t local = 0;
  std::vector<std::pair<Held, std::pair<std::int64_t, std::int64_t>>> runs;
  for (const Piece& piece : cut.pieces) {
    const Held held = held_of(spec, piece, cut.axis, position);
    if (held.length > 0) runs.push_back({held, {global + held.first, local}});
    shard.shared = shard.shared || held.holders > 1;
    global += piece.size;
    local += held.room;
  }
  COL_CHECK(global == spec.shape[dim],
            "{}: pieces must add up to dimension {} of its shape; got {}; correct the placement", spec.name,
            cut.dim, global);
  for (const Part& whole : shard.parts)
    for (const auto& [held, at] : runs) {
      Part& part = parts.emplace_back(whole);
      part.global[dim] = at.first;
      part.local[dim] = at.second;
      part.length[dim] = held.length;
      part.holders *= held.holders;
      part.owner = part.owner && held.owner;
    }
  shard.parts = std::move(parts);
  shard.shape[dim] = local;
}

}  // namespace

AxisSet model_axes(Family family) {
  return family == Family::kDense ? AxisSet{Axis::kTp} : AxisSet{Axis::kEtp, Axis::kEp};
}
AxisSet data_axes(Family family) {
  return family == Family::kDense ? AxisSet{Axis::kDp, Axis::kCp} : AxisSet{Axis::kEdp};
}

std::int64_t ParamSpec::numel() const { return product(shape); }
std::int64_t Shard::numel() const { return product(shape); }

const Cut* ParamSpec::cut(Axis axis) const {
  const auto found = std::ranges::find(cuts, axis, &Cut::axis);
  return found == cuts.end() ? nullptr : &*found;
}

Shard shard(const ParamSpec& spec, const Position& position) {
  const std::vector<std::int64_t> zeros(spec.shape.size(), 0);
  Shard shard{.shape = spec.shape, .parts = {{.global = zeros, .local = zeros, .length = spec.shape}}};
  for (const Axis axis : {Axis::kTp, Axis::kEtp, Axis::kEp}) {
    if (!model_axes(spec.family).has(axis) || spec.cut(axis) != nullptr) continue;
    shard.parts[0].holders *= position.size(axis);
    shard.parts[0].owner = shard.parts[0].owner && position.coord(axis) == 0;
  }
  for (const Cut& cut : spec.cuts) apply(spec, cut, position, shard);
  return shard;
}

void for_each_stretch(const ParamSpec& spec, const Shard& shard, const Part& part,
                      const std::function<void(const Stretch&)>& use) {
  // Dimensions behind `inner` are whole on both sides.
  std::size_t inner = spec.shape.size();
  while (inner > 0 && shard.shape[inner - 1] == spec.shape[inner - 1] &&
         part.length[inner - 1] == spec.shape[inner - 1])
    --inner;
  if (inner == 0) return use({0, 0, spec.numel()});
  const std::size_t last = inner - 1;
  const std::int64_t row = product(spec.shape, inner);
  std::vector<std::int64_t> at(last, 0);  // in the part
  for (;;) {
    Stretch stretch{0, 0, part.length[last] * row};
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

std::vector<Range> owned(const ParamSpec& spec, const Shard& shard) {
  std::vector<Range> all;
  for (const Part& part : shard.parts)
    if (part.owner)
      for_each_stretch(spec, shard, part, [&](const Stretch& s) {
        all.push_back({s.local, s.local + s.length});
      });
  std::ranges::sort(all, {}, &Range::begin);
  std::vector<Range> joined;
  for (const Range& one : all) {
    if (!joined.empty() && joined.back().end == one.begin)
      joined.back().end = one.end;
    else
      joined.push_back(one);
  }
  return joined;
}

}  // namespace colonnade::layout
