// Cuts a parameter into the parts of the ranks of one axis.
#include "colonnade/plan/param.h"

#include <algorithm>
#include <numeric>

#include "colonnade/base/error.h"

namespace colonnade::plan {
namespace {

std::int64_t product(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::string label(const ParamSpec& spec, const Piece& piece) {
  return piece.role.empty() ? spec.name : spec.name + " [" + piece.role + "]";
}

/// What one rank holds of one piece.
struct Part {
  std::int64_t first = 0;   ///< offset within the piece
  std::int64_t length = 0;  ///< true elements
  std::int64_t room = 0;    ///< local length, filling included
  int holders = 1;
  bool owner = true;
};

Part cut(const ParamSpec& spec, const Piece& piece, int coord, int size) {
  COL_CHECK(piece.unit > 0 && piece.size > 0 && piece.size % piece.unit == 0,
            "{}: a piece must be whole units; got size {} and unit {}; correct the placement",
            label(spec, piece), piece.size, piece.unit);
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
      label(spec, piece), units, piece.unit, name(spec.split_axis), size, name(spec.split_axis)));
}

}  // namespace

std::int64_t ParamSpec::numel() const { return product(shape); }
std::int64_t Shard::numel() const { return product(shape); }

Shard shard(const ParamSpec& spec, int coord, int size) {
  COL_CHECK(size >= 1 && coord >= 0 && coord < size,
            "{}: coordinate must be below the axis size; got {} of {}; pass "
            "the rank's place on {}",
            spec.name, coord, size, name(spec.split_axis));
  Shard part{.shape = spec.shape, .runs = {}, .replicated_runs = false};
  if (spec.split_dim < 0) {
    const std::int64_t length = spec.shape.empty() ? 1 : spec.shape[0];
    part.runs.push_back({.length = length, .holders = size, .owner = coord == 0});
    part.replicated_runs = size > 1;
    return part;
  }
  std::int64_t global = 0;
  std::int64_t local = 0;
  for (const Piece& piece : spec.pieces) {
    const Part held = cut(spec, piece, coord, size);
    if (held.length > 0) {
      part.runs.push_back({global + held.first, local, held.length, held.holders, held.owner});
    }
    part.replicated_runs = part.replicated_runs || held.holders > 1;
    global += piece.size;
    local += held.room;
  }
  const auto dim = static_cast<std::size_t>(spec.split_dim);
  COL_CHECK(dim < spec.shape.size() && global == spec.shape[dim],
            "{}: pieces must add up to dimension {} of its shape; got {}; correct the placement", spec.name,
            spec.split_dim, global);
  part.shape[dim] = local;
  return part;
}

}  // namespace colonnade::plan
