// Placement of virtual stages on pipeline ranks, used by schedules and by the layer split.
#pragma once

#include <cstddef>
#include <vector>

namespace colonnade::config {
struct Parallel;
}

namespace colonnade::schedule {

/// Pipeline rank and model chunk of a virtual stage.
struct StageLocation {
  int rank = 0;   ///< pipeline rank
  int chunk = 0;  ///< model chunk of that rank, from 0
  friend bool operator==(const StageLocation&, const StageLocation&) = default;
};

/// One-to-one map between virtual stages 0 .. stages() - 1 and (rank, chunk). Every rank has the same number
/// of chunks, in ascending order of their stages.
class Placement {
 public:
  Placement() : Placement(loop(1, 1)) {}
  /// Stage c * ranks + r is chunk c of rank r: the last rank continues at the first one (Megatron's order).
  static Placement loop(int ranks, int chunks);
  /// Stages r and 2 * ranks - 1 - r are chunks 0 and 1 of rank r, a V: the first and the last stage share
  /// rank 0, and the two middle stages share the last rank (Qi et al. 2023, ZB-V).
  static Placement vee(int ranks);

  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] int chunks() const { return static_cast<int>(locations_.size()) / ranks_; }
  [[nodiscard]] int stages() const { return static_cast<int>(locations_.size()); }
  [[nodiscard]] int stage(int rank, int chunk) const { return stage_of_slot_[slot(rank, chunk)]; }
  [[nodiscard]] StageLocation location(int stage) const {
    return locations_[static_cast<std::size_t>(stage)];
  }

  /// Whether `stage` and the next one are on different ranks, so that activations are sent between them.
  /// False after the last stage and before the first one (stage -1).
  [[nodiscard]] bool crosses(int stage) const {
    return stage >= 0 && stage + 1 < stages() && location(stage).rank != location(stage + 1).rank;
  }

  friend bool operator==(const Placement&, const Placement&) = default;

 private:
  Placement(int ranks, std::vector<StageLocation> locations);
  [[nodiscard]] std::size_t slot(int rank, int chunk) const {
    return static_cast<std::size_t>(rank) * static_cast<std::size_t>(chunks()) +
           static_cast<std::size_t>(chunk);
  }

  int ranks_ = 1;
  std::vector<StageLocation> locations_;  ///< by stage
  std::vector<int> stage_of_slot_;
};

/// Placement of `chunks` virtual stages per rank under the schedule of the settings. Throws ConfigError if
/// the schedule needs another number of chunks.
Placement placement_of(const config::Parallel& parallel, int chunks);

/// Virtual stages per rank of the schedule of the settings, unless other settings define their number.
int default_chunks(const config::Parallel& parallel);

}  // namespace colonnade::schedule
