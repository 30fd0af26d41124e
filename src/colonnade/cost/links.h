// Times of messages between the ranks of a mesh on given hardware.
#pragma once

#include <vector>

#include "colonnade/cost/hardware.h"
#include "colonnade/layout/mesh.h"

namespace colonnade::cost {

/// Ranks as a ring.
struct Ring {
  int ranks = 1;
  double bandwidth = 1;  ///< bytes per second that each rank passes on
  double latency = 0;    ///< seconds per step

  /// Gathering, or summing and scattering, `bytes` in all.
  [[nodiscard]] double seconds(double bytes) const {
    return ranks < 2 ? 0 : bytes * (ranks - 1) / ranks / bandwidth + (ranks - 1) * latency;
  }
};
/// Where the ring leaves the node of its first rank, its members within a node share all their ways out:
/// bandwidth = min(inside, outside * members of a node).
Ring ring_of(const Hardware& hardware, const std::vector<int>& ranks);
/// Rank 0's ring over `axes`.
Ring ring_of(const Hardware& hardware, const layout::Mesh& mesh, layout::AxisSet axes);

/// Ranks of which each sends every other one an equal part at once, each by its own way out of the node.
struct Exchange {
  int ranks = 1, nodes = 1;
  double inside = 0, outside = 0;  ///< of what a rank sends: shares for others of its node and of others
  double inside_bandwidth = 1, outside_bandwidth = 1;
  double latency = 0;

  /// `bytes`: what each rank sends in all, its own part included. Both ways are used at the same time.
  [[nodiscard]] double seconds(double bytes) const;
  /// The same where a token's row goes once to each node that has some of its `choices` experts, and is
  /// copied there: of N nodes N (1 - (1 - 1/N)^choices) are met on average.
  [[nodiscard]] double seconds_once_per_node(double bytes, double choices) const;
};
/// Nodes hold equally many of the ranks, as many as that of the first one.
Exchange exchange_of(const Hardware& hardware, const std::vector<int>& ranks);

/// What of `communication` is not hidden beside `work` that does not depend on it, in seconds.
double unhidden(const Hardware& hardware, double communication, double work);

/// Seconds of `bytes` from each of the ranks to the next one; the slowest way sets the pace.
double hop_seconds(const Hardware& hardware, const std::vector<int>& ranks, double bytes);

}  // namespace colonnade::cost
