// See mesh.h.
#include "colonnade/layout/mesh.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "colonnade/base/error.h"

namespace colonnade::layout {
namespace {

constexpr AxisSet kDense{Axis::kTp, Axis::kCp, Axis::kDp, Axis::kPp};
constexpr AxisSet kExpert{Axis::kEtp, Axis::kEp, Axis::kEdp, Axis::kPp};

/// Order of axes in names: Megatron writes "dp-cp" and "tp-dp-cp".
constexpr std::array<Axis, kNumAxes> kNaming = {Axis::kTp, Axis::kDp,  Axis::kCp, Axis::kEtp,
                                                Axis::kEp, Axis::kEdp, Axis::kPp};

constexpr std::size_t at(Axis axis) { return static_cast<std::size_t>(axis); }

bool within(AxisSet axes, AxisSet factoring) {
  return std::all_of(kNaming.begin(), kNaming.end(),
                     [&](Axis axis) { return !axes.has(axis) || factoring.has(axis); });
}

/// world / (inner * pipeline), or ConfigError.
int data_size(std::int64_t world, std::int64_t inner, std::int64_t pipeline, std::string_view product,
              std::string_view fix) {
  const std::int64_t block = inner * pipeline;
  if (world % block != 0) {
    throw ConfigError(fmt::format("world size must be a multiple of {} = {}; got {}; start {} ranks or {}",
                                  product, block, world, (world / block + 1) * block, fix));
  }
  return static_cast<int>(world / block);
}

}  // namespace

std::string_view name(Axis axis) {
  static constexpr std::array<std::string_view, kNumAxes> kNames = {"tp",  "cp", "dp", "pp",
                                                                    "etp", "ep", "edp"};
  return kNames[at(axis)];
}

std::string name(AxisSet axes) {
  std::string text;
  for (const Axis axis : kNaming) {
    if (!axes.has(axis)) continue;
    if (!text.empty()) text += '-';
    text += name(axis);
  }
  return text;
}

Position& Position::set(Axis axis, int coord, int size) {
  COL_CHECK(size >= 1 && coord >= 0 && coord < size,
            "mesh coordinate must be below the size of its axis; got {} of {} on {}; fix the caller", coord,
            size, name(axis));
  coords[at(axis)] = coord;
  sizes[at(axis)] = size;
  return *this;
}

int size_of(const config::Parallel& p, AxisSet axes) {
  COL_CHECK(!axes.has(Axis::kDp) && !axes.has(Axis::kEdp),
            "only sizes of model axes are given; got {}; use Mesh for data axes", name(axes));
  const std::pair<Axis, int> sizes[] = {{Axis::kTp, p.tensor_model_parallel_size},
                                        {Axis::kCp, p.context_parallel_size},
                                        {Axis::kPp, p.pipeline_model_parallel_size},
                                        {Axis::kEtp, p.expert_tensor_size()},
                                        {Axis::kEp, p.expert_model_parallel_size}};
  int product = 1;
  for (const auto& [axis, size] : sizes)
    if (axes.has(axis)) product *= size;
  return product;
}

int smallest_world(const config::Parallel& p) {
  return std::lcm(size_of(p, {Axis::kTp, Axis::kCp, Axis::kPp}),
                  size_of(p, {Axis::kEtp, Axis::kEp, Axis::kPp}));
}

Mesh::Mesh(const config::Parallel& p) : world_(p.world_size) {
  const int tp = p.tensor_model_parallel_size;
  const int cp = p.context_parallel_size;
  const int pp = p.pipeline_model_parallel_size;
  const int ep = p.expert_model_parallel_size;
  const int etp = p.expert_tensor_size();
  if (std::min({world_, tp, cp, pp, ep, etp}) < 1) {
    throw ConfigError(fmt::format(
        "parallel sizes must be at least 1; got world {} tensor {} context {} pipeline {} expert {} expert "
        "tensor {}; remove unused sizes",
        world_, tp, cp, pp, ep, etp));
  }
  const int dp = data_size(world_, std::int64_t{tp} * cp, pp, "tensor * context * pipeline size",
                           "reduce one of these sizes");
  const int edp = data_size(world_, std::int64_t{etp} * ep, pp, "expert tensor * expert * pipeline size",
                            "reduce one of these sizes");
  if (p.use_tp_pp_dp_mapping && pp > 1 && edp != dp) {
    throw ConfigError(fmt::format(
        "--use-tp-pp-dp-mapping requires equal data-parallel sizes of dense and expert layers; got {} and "
        "{}; make expert tensor * expert size equal to tensor * context size = {}, or remove the flag",
        dp, edp, tp * cp));
  }
  const auto set = [this](Axis axis, int size, int stride) {
    sizes_[at(axis)] = size;
    strides_[at(axis)] = stride;
  };
  const bool data_last = p.use_tp_pp_dp_mapping;
  set(Axis::kTp, tp, 1);
  set(Axis::kCp, cp, tp);
  set(Axis::kDp, dp, data_last ? tp * cp * pp : tp * cp);
  set(Axis::kPp, pp, data_last ? tp * cp : tp * cp * dp);
  set(Axis::kEtp, etp, 1);
  set(Axis::kEp, ep, etp);
  set(Axis::kEdp, edp, data_last ? etp * ep * pp : etp * ep);
}

int Mesh::size(Axis axis) const { return sizes_[at(axis)]; }

int Mesh::size(AxisSet axes) const {
  int product = 1;
  for (const Axis axis : kNaming) {
    if (axes.has(axis)) product *= size(axis);
  }
  return product;
}

int Mesh::coord(int rank, Axis axis) const {
  COL_CHECK(rank >= 0 && rank < world_, "mesh rank must be between 0 and {}; got {}; fix the caller",
            world_ - 1, rank);
  return rank / strides_[at(axis)] % sizes_[at(axis)];
}

Position Mesh::position(int rank) const {
  Position position;
  for (const Axis axis : kNaming) position.set(axis, coord(rank, axis), size(axis));
  return position;
}

std::vector<int> Mesh::peers(int rank, AxisSet axes) const {
  COL_CHECK(
      within(axes, kDense) || within(axes, kExpert),
      "mesh axes of a group must belong to one factoring (tp-cp-dp-pp or etp-ep-edp-pp); got {}; use two "
      "groups",
      name(axes));
  std::array<Axis, kNumAxes> order = kNaming;  // fastest first, so that members are ascending
  std::sort(order.begin(), order.end(), [&](Axis a, Axis b) { return strides_[at(a)] < strides_[at(b)]; });
  std::vector<int> members{rank};
  for (const Axis axis : order) {
    if (axes.has(axis)) members[0] -= coord(rank, axis) * strides_[at(axis)];
  }
  for (const Axis axis : order) {
    if (!axes.has(axis)) continue;
    const std::size_t inner = members.size();
    for (int i = 1; i < size(axis); ++i) {
      for (std::size_t j = 0; j < inner; ++j) members.push_back(members[j] + i * strides_[at(axis)]);
    }
  }
  return members;
}

int Mesh::index(int rank, AxisSet axes) const {
  const std::vector<int> members = peers(rank, axes);
  return static_cast<int>(std::lower_bound(members.begin(), members.end(), rank) - members.begin());
}

std::vector<std::vector<int>> Mesh::groups(AxisSet axes) const {
  std::vector<std::vector<int>> all;
  for (int rank = 0; rank < world_; ++rank) {
    const bool first = std::all_of(kNaming.begin(), kNaming.end(),
                                   [&](Axis axis) { return !axes.has(axis) || coord(rank, axis) == 0; });
    if (first) all.push_back(peers(rank, axes));
  }
  return all;
}

}  // namespace colonnade::layout
