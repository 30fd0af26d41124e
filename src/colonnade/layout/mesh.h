// Device mesh: the dense and the expert factoring of the same ranks. Plain arithmetic without processes or
// LibTorch, so that a laptop can check a plan of 100,000 ranks. Source: Megatron's core/parallel_state.py
// (RankGenerator).
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "colonnade/config/parallel.h"

namespace colonnade::layout {

/// Dense ranks are tp x cp x dp x pp, expert ranks etp x ep x edp x pp.
enum class Axis : std::uint8_t { kTp, kCp, kDp, kPp, kEtp, kEp, kEdp };
inline constexpr int kNumAxes = 7;
std::string_view name(Axis axis);  ///< "tp", "cp", ...

/// Set of axes. The data axes of dense parameters are {kDp, kCp}.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes) bits_ |= bit(axis);
  }
  [[nodiscard]] constexpr bool has(Axis axis) const { return (bits_ & bit(axis)) != 0; }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  constexpr void add(Axis axis) { bits_ |= bit(axis); }
  friend constexpr bool operator==(AxisSet, AxisSet) = default;
  friend constexpr auto operator<=>(AxisSet a, AxisSet b) { return a.bits_ <=> b.bits_; }

 private:
  static constexpr std::uint8_t bit(Axis axis) {
    return static_cast<std::uint8_t>(1U << static_cast<unsigned>(axis));
  }
  std::uint8_t bits_ = 0;
};
std::string name(AxisSet axes);  ///< "dp-cp"
/// Axes of the ranks among which layers dispatch tokens.
inline constexpr AxisSet kDispatchAxes{Axis::kEtp, Axis::kEp};

/// Coordinates of one rank on every axis.
struct Position {
  std::array<int, kNumAxes> coords{};
  std::array<int, kNumAxes> sizes{1, 1, 1, 1, 1, 1, 1};

  [[nodiscard]] int coord(Axis axis) const { return coords[static_cast<std::size_t>(axis)]; }
  [[nodiscard]] int size(Axis axis) const { return sizes[static_cast<std::size_t>(axis)]; }
  /// Sets coordinate and size of one axis. Throws Error unless 0 <= coord < size.
  Position& set(Axis axis, int coord, int size);
  /// Coordinate on one axis; all other axes have size 1.
  static Position on(Axis axis, int coord, int size) { return Position().set(axis, coord, size); }
};

/// Product of the given sizes of `axes`, which must be model axes or kPp. Unlike Mesh, does not check the
/// world size. Throws Error for a data axis.
int size_of(const config::Parallel& parallel, AxisSet axes);

/// Smallest world size that both factorings allow: lcm(tp * cp * pp, etp * ep * pp).
int smallest_world(const config::Parallel& parallel);

/// Maps ranks to coordinates and process groups. Cheap to copy.
class Mesh {
 public:
  /// Mesh of a job in the order "tp-cp-ep-dp-pp", leftmost fastest. Throws ConfigError unless tp*cp*pp and
  /// etp*ep*pp divide the world size and, if the order does not end in pp, edp == dp.
  explicit Mesh(const config::Parallel& parallel);

  [[nodiscard]] int world_size() const { return world_; }
  [[nodiscard]] int size(Axis axis) const;
  /// Product of the sizes of `axes`.
  [[nodiscard]] int size(AxisSet axes) const;
  [[nodiscard]] int coord(int rank, Axis axis) const;
  [[nodiscard]] Position position(int rank) const;
  /// Ranks that differ from `rank` on `axes` only, ascending, `rank` included. All axes must belong
  /// to one factoring (pp belongs to both). Throws Error otherwise.
  [[nodiscard]] std::vector<int> peers(int rank, AxisSet axes) const;
  /// Position of `rank` in peers(rank, axes).
  [[nodiscard]] int index(int rank, AxisSet axes) const;
  /// Every group of `axes` in the world, each ascending, ordered by first member.
  [[nodiscard]] std::vector<std::vector<int>> groups(AxisSet axes) const;

 private:
  int world_ = 1;
  int sizes_[kNumAxes] = {1, 1, 1, 1, 1, 1, 1};
  int strides_[kNumAxes] = {0, 0, 0, 0, 0, 0, 0};
};

}  // namespace colonnade::layout
