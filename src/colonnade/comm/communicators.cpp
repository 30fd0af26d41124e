// Groups of a mesh, created at first use and cached.
#include "colonnade/comm/communicators.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/base/philox.h"

namespace colonnade::comm {

Communicators::Communicators(layout::Mesh mesh, int rank, std::shared_ptr<GroupFactory> factory)
    : mesh_(std::move(mesh)), rank_(rank), factory_(std::move(factory)) {
  COL_CHECK(rank >= 0 && rank < mesh_.world_size(), "rank must be in the world; got rank {} of {}", rank,
            mesh_.world_size());
}

Group Communicators::group(layout::AxisSet axes) {
  return make(mesh_.peers(rank_, axes), layout::name(axes));
}

Group Communicators::inner_group(layout::AxisSet axes, int size) {
  const std::vector<int> all = mesh_.peers(rank_, axes);
  COL_CHECK(size >= 1 && all.size() % static_cast<std::size_t>(size) == 0,
            "size of subgroups must divide the group; got {} of {} ranks", size, all.size());
  if (static_cast<int>(all.size()) == size) return group(axes);
  const auto first = all.begin() + mesh_.index(rank_, axes) / size * size;
  return make({first, first + size}, fmt::format("{}.{}.inner", layout::name(axes), size));
}

std::pair<Group, Group> Communicators::inner_outer_groups(layout::AxisSet axes, int inner) {
  if (inner == 1) return {Group(), group(axes)};
  Group own = inner_group(axes, inner);
  const std::vector<int> all = mesh_.peers(rank_, axes);
  if (inner == static_cast<int>(all.size())) return {std::move(own), Group()};
  std::vector<int> outer;
  for (int i = mesh_.index(rank_, axes) % inner; i < static_cast<int>(all.size()); i += inner)
    outer.push_back(all[static_cast<std::size_t>(i)]);
  return {std::move(own), make(outer, fmt::format("{}.{}.outer", layout::name(axes), inner))};
}

Group Communicators::world() {
  std::vector<int> ranks(static_cast<std::size_t>(mesh_.world_size()));
  for (int r = 0; r < mesh_.world_size(); ++r) ranks[static_cast<std::size_t>(r)] = r;
  return make(ranks, "world");
}

Group Communicators::pipeline_group(const std::vector<int>& pipeline_ranks, const std::string& name) {
  if (std::ranges::count(pipeline_ranks, coord(layout::Axis::kPp)) == 0) return {};
  const std::vector<int> all = mesh_.peers(rank_, {layout::Axis::kPp});
  std::vector<int> members;
  for (const int pp : pipeline_ranks) members.push_back(all.at(static_cast<std::size_t>(pp)));
  return make(members, name);
}

Group Communicators::make(const std::vector<int>& ranks, const std::string& name) {
  const auto known = groups_.find(name);
  if (known != groups_.end()) return known->second;
  Group group;
  if (ranks.size() > 1) {
    // The hash separates groups of two meshes in one job that share a name and a first member.
    const std::uint64_t members = stable_hash(fmt::format("{}", fmt::join(ranks, ",")));
    const auto index = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin());
    group =
        Group(factory_->make(ranks, index, fmt::format("{}.{}.{:016x}", name, ranks.front(), members)), name);
  }
  return groups_.emplace(name, std::move(group)).first->second;
}

}  // namespace colonnade::comm
