// Which virtual stage is where: part of every schedule, and of the split of the layers.
#pragma once

#include <cstddef>
#include <vector>

namespace colonnade::config {
struct Parallel;
}

namespace colonnade::schedule {

/// Where a virtual stage is.
struct Place {
  int rank = 0;   ///< pipeline rank
  int chunk = 0;  ///< of that rank, from 0
  friend bool operator==(const Place&, const Place&) = default;
};

/// A one-to-one map between virtual stages 0 .. stages() - 1 and (rank, chunk). Every rank has the same
/// number of chunks, and the chunks of a rank ascend with their stages.
class Placement {
 public:
  Placement() : Placement(loop(1, 1)) {}
  /// Stage c * ranks + r is chunk c of rank r: from the last rank on to the first one (Megatron's order).
  static Placement loop(int ranks, int chunks);
  /// Stages r and 2 * ranks - 1 - r are chunks 0 and 1 of rank r: down and up again, so that the first and
  /// the last stage share rank 0, and the two at the turn share the last rank (Qi et al. 2023, ZB-V).
  static Placement vee(int ranks);

  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] int chunks() const { return static_cast<int>(places_.size()) / ranks_; }
  [[nodiscard]] int stages() const { return static_cast<int>(places_.size()); }
  [[nodiscard]] int stage(int rank, int chunk) const { return numbers_[seat(rank, chunk)]; }
  [[nodiscard]] Place place(int stage) const { return places_[static_cast<std::size_t>(stage)]; }

  /// Whether a value crosses from one rank to another between `stage` and the next one; no message is sent
  /// where both are on one rank, nor behind the last stage and before the first one (stage -1).
  [[nodiscard]] bool crosses(int stage) const {
    return stage >= 0 && stage + 1 < stages() && place(stage).rank != place(stage + 1).rank;
  }

  friend bool operator==(const Placement&, const Placement&) = default;

 private:
  Placement(int ranks, std::vector<Place> places);
  [[nodiscard]] std::size_t seat(int rank, int chunk) const {
    return static_cast<std::size_t>(rank) * static_cast<std::size_t>(chunks()) +
           static_cast<std::size_t>(chunk);
  }

  int ranks_ = 1;
  std::vector<Place> places_;  ///< by stage
  std::vector<int> numbers_;   ///< by seat
};

/// Where the schedule of the settings puts `chunks` virtual stages per rank. Throws ConfigError where it
/// needs another number of them.
Placement placement_of(const config::Parallel& parallel, int chunks);

/// Virtual stages per rank that the schedule of the settings has when nothing else says their number.
int default_chunks(const config::Parallel& parallel);

}  // namespace colonnade::schedule
