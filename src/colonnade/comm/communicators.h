// A mesh turned into groups, lazily and only for members. Passed by hand: there is no global
// parallel state, so two meshes in one process just work.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "colonnade/comm/group.h"
#include "colonnade/layout/mesh.h"

namespace colonnade::comm {

/// Makes the group of `ranks` (ascending, this rank among them). `name` is equal on all members and
/// unique in the job. Implemented by the world's backend (gloo and nccl over a TCPStore, threads).
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
  /// For a second mesh over the same ranks.
  [[nodiscard]] const std::shared_ptr<GroupFactory>& factory() const { return factory_; }
  [[nodiscard]] int coord(layout::Axis axis) const { return mesh_.coord(rank_, axis); }
  /// This rank's group over `axes`. Collective over its members the first time.
  Group group(layout::AxisSet axes);
  /// The members of group(axes) in order, cut into runs of `size`, which divides them: this rank's run.
  /// Collective as group().
  Group run(layout::AxisSet axes, int size);
  /// The members of group(axes) in order, cut into runs of `inner`: this rank's run, and the members at its
  /// place in all runs; one of the two is group(axes) where the other is a group of one. `inner` divides
  /// them. Collective as group().
  std::pair<Group, Group> levels(layout::AxisSet axes, int inner);
  /// All ranks.
  Group world();
  /// Those of this rank's pipeline ranks whose coordinates are `places` (ascending); a group of one where
  /// this rank is none of them. Collective over its members the first time.
  Group stages(const std::vector<int>& places, const std::string& name);

 private:
  Group make(const std::vector<int>& ranks, const std::string& name);
  layout::Mesh mesh_;
  int rank_;
  std::shared_ptr<GroupFactory> factory_;
  std::map<std::string, Group> made_;
};

}  // namespace colonnade::comm
