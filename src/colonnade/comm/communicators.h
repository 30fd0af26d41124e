// Process groups of a mesh, created lazily. Passed explicitly: there is no global parallel state, so one
// process can use two meshes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "colonnade/comm/group.h"
#include "colonnade/layout/mesh.h"

namespace colonnade::comm {

/// Creates the group of `ranks` (ascending, including this rank). `name` is equal on all members and unique
/// in the job. Implementations: gloo and nccl over a TCPStore, threads, null.
class GroupFactory {
 public:
  virtual ~GroupFactory() = default;
  virtual std::shared_ptr<Backend> make(const std::vector<int>& ranks, int my_index,
                                        const std::string& name) = 0;
};

class Communicators {
 public:
  Communicators(layout::Mesh mesh, int rank, std::shared_ptr<GroupFactory> factory);

  [[nodiscard]] const layout::Mesh& mesh() const { return mesh_; }
  [[nodiscard]] int rank() const { return rank_; }
  /// Factory for a second mesh over the same ranks.
  [[nodiscard]] const std::shared_ptr<GroupFactory>& factory() const { return factory_; }
  [[nodiscard]] int coord(layout::Axis axis) const { return mesh_.coord(rank_, axis); }
  /// This rank's group over `axes`. The first call is collective over its members.
  Group group(layout::AxisSet axes);
  /// This rank's subgroup when group(axes) is split into consecutive subgroups of `size`, which must divide
  /// it. Collective as group().
  Group inner_group(layout::AxisSet axes, int size);
  /// Two-level groups: the inner group of `inner` consecutive members of group(axes), and the outer group of
  /// the members at the same position in every inner group. If one has one member, the other is group(axes).
  /// `inner` must divide group(axes). Collective as group().
  std::pair<Group, Group> inner_outer_groups(layout::AxisSet axes, int inner);
  /// The group of all ranks.
  Group world();
  /// The members of this rank's pipeline with coordinates `pipeline_ranks` (ascending); a group of one on
  /// other ranks. The first call is collective over its members.
  Group pipeline_group(const std::vector<int>& pipeline_ranks, const std::string& name);

 private:
  Group make(const std::vector<int>& ranks, const std::string& name);
  layout::Mesh mesh_;
  int rank_;
  std::shared_ptr<GroupFactory> factory_;
  std::map<std::string, Group> groups_;
};

}  // namespace colonnade::comm
