// Communication times between the ranks of a mesh on given hardware.
#pragma once

#include <vector>

#include "colonnade/cost/hardware.h"
#include "colonnade/layout/mesh.h"

namespace colonnade::cost {

/// Ring of ranks.
struct Ring {
  int ranks = 1;
  double bandwidth = 1;  ///< bytes per second that each rank forwards
  double latency = 0;    ///< seconds per step

  /// All-gather or reduce-scatter of `bytes` in total.
  [[nodiscard]] double seconds(double bytes) const {
    return ranks < 2 ? 0 : bytes * (ranks - 1) / ranks / bandwidth + (ranks - 1) * latency;
  }
};
/// If the ring leaves the node of its first rank, its members within a node share their ports:
/// bandwidth = min(intra-node, inter-node * members per node).
Ring ring_of(const Hardware& hardware, const std::vector<int>& ranks);
/// Rank 0's ring over `axes`.
Ring ring_of(const Hardware& hardware, const layout::Mesh& mesh, layout::AxisSet axes);

/// All-to-all with equal splits; each rank uses its own port to other nodes.
struct AllToAll {
  int ranks = 1, nodes = 1;
  double inside = 0,
         outside = 0;  ///< shares of a rank's bytes for other ranks of its node, and for other nodes
  double inside_bandwidth = 1, outside_bandwidth = 1;
  double latency = 0;

  /// `bytes`: total bytes of each rank, its own split included. Both links are used at the same time.
  [[nodiscard]] double seconds(double bytes) const;
  /// The same if a token's row is sent once per node with some of its `topk` destinations and copied there:
  /// of N nodes N (1 - (1 - 1/N)^topk) are reached on average.
  [[nodiscard]] double seconds_once_per_node(double bytes, double topk) const;
};
/// Every node is assumed to hold as many of the ranks as the first rank's node.
AllToAll all_to_all_of(const Hardware& hardware, const std::vector<int>& ranks);

/// Seconds of `communication` that remain exposed alongside independent `compute`, with the cost of overlap.
double exposed_seconds(const Hardware& hardware, double communication, double compute);

/// Seconds of `bytes` sent from each rank to the next one; the slowest link decides.
double hop_seconds(const Hardware& hardware, const std::vector<int>& ranks, double bytes);

}  // namespace colonnade::cost
