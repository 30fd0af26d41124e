// Times of rings, all-to-alls and hops within and between nodes.
#include "colonnade/cost/interconnect.h"

#include <algorithm>
#include <cmath>

namespace colonnade::cost {
namespace {

/// Number of `ranks` in the node of the first one.
int ranks_in_first_node(const Hardware& hardware, const std::vector<int>& ranks) {
  const int node = hardware.devices_per_node;
  return static_cast<int>(
      std::count_if(ranks.begin(), ranks.end(), [&](int rank) { return rank / node == ranks[0] / node; }));
}

double effective_bandwidth(const Link& link) { return link.bandwidth * link.share; }

}  // namespace

Ring ring_of(const Hardware& hardware, const std::vector<int>& ranks) {
  const int size = static_cast<int>(ranks.size());
  const double inside = effective_bandwidth(hardware.intra_node);
  const int in_node = ranks_in_first_node(hardware, ranks);
  if (in_node == size) return {size, inside, hardware.intra_node.latency};
  return {size, std::min(inside, effective_bandwidth(hardware.inter_node) * in_node),
          hardware.inter_node.latency};
}

Ring ring_of(const Hardware& hardware, const layout::Mesh& mesh, layout::AxisSet axes) {
  return ring_of(hardware, mesh.peers(0, axes));
}

double AllToAll::seconds(double bytes) const {
  if (ranks < 2) return 0;
  return std::max(bytes * inside / inside_bandwidth, bytes * outside / outside_bandwidth) + latency;
}

double AllToAll::seconds_once_per_node(double bytes, double topk) const {
  if (ranks < 2) return 0;
  const double nodes_reached = nodes * (1 - std::pow(1 - 1.0 / nodes, topk));
  const double sent_share = std::min(1.0, nodes_reached / topk);
  return std::max(bytes * inside / inside_bandwidth, bytes * outside * sent_share / outside_bandwidth) +
         latency;
}

AllToAll all_to_all_of(const Hardware& hardware, const std::vector<int>& ranks) {
  const int size = static_cast<int>(ranks.size()), in_node = ranks_in_first_node(hardware, ranks);
  const double all = size;
  AllToAll e{.ranks = size, .nodes = (size + in_node - 1) / in_node};
  e.inside = (in_node - 1) / all;
  e.outside = (size - in_node) / all;
  e.inside_bandwidth = effective_bandwidth(hardware.intra_node);
  e.outside_bandwidth = effective_bandwidth(hardware.inter_node);
  e.latency = in_node < size ? hardware.inter_node.latency : hardware.intra_node.latency;
  return e;
}

double exposed_seconds(const Hardware& hardware, double communication, double compute) {
  return std::max(0.0, communication - compute) + hardware.overlap_cost * std::min(communication, compute);
}

double hop_seconds(const Hardware& hardware, const std::vector<int>& ranks, double bytes) {
  const bool inside = ranks_in_first_node(hardware, ranks) == static_cast<int>(ranks.size());
  const Link& link = inside ? hardware.intra_node : hardware.inter_node;
  return bytes / effective_bandwidth(link) + link.latency;
}

}  // namespace colonnade::cost
