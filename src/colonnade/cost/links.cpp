// Rings, exchanges and hops, inside a node and beyond.
#include "colonnade/cost/links.h"

#include <algorithm>
#include <cmath>

namespace colonnade::cost {
namespace {

/// How many of the ranks are in the node of the first one.
int near(const Hardware& hardware, const std::vector<int>& ranks) {
  const int node = hardware.devices_per_node;
  return static_cast<int>(
      std::count_if(ranks.begin(), ranks.end(), [&](int rank) { return rank / node == ranks[0] / node; }));
}

double speed(const Link& link) { return link.bandwidth * link.share; }

}  // namespace

Ring ring_of(const Hardware& hardware, const std::vector<int>& ranks) {
  const int size = static_cast<int>(ranks.size());
  const double inside = speed(hardware.intra_node);
  const int close = near(hardware, ranks);
  if (close == size) return {size, inside, hardware.intra_node.latency};
  return {size, std::min(inside, speed(hardware.inter_node) * close), hardware.inter_node.latency};
}

Ring ring_of(const Hardware& hardware, const layout::Mesh& mesh, layout::AxisSet axes) {
  return ring_of(hardware, mesh.peers(0, axes));
}

double Exchange::seconds(double bytes) const {
  if (ranks < 2) return 0;
  return std::max(bytes * inside / inside_bandwidth, bytes * outside / outside_bandwidth) + latency;
}

double Exchange::seconds_once_per_node(double bytes, double choices) const {
  if (ranks < 2) return 0;
  const double met = nodes * (1 - std::pow(1 - 1.0 / nodes, choices));
  const double far = std::min(1.0, met / choices);
  return std::max(bytes * inside / inside_bandwidth, bytes * outside * far / outside_bandwidth) + latency;
}

Exchange exchange_of(const Hardware& hardware, const std::vector<int>& ranks) {
  const int size = static_cast<int>(ranks.size()), close = near(hardware, ranks);
  const double all = size;
  Exchange e{.ranks = size, .nodes = (size + close - 1) / close};
  e.inside = (close - 1) / all;
  e.outside = (size - close) / all;
  e.inside_bandwidth = speed(hardware.intra_node);
  e.outside_bandwidth = speed(hardware.inter_node);
  e.latency = close < size ? hardware.inter_node.latency : hardware.intra_node.latency;
  return e;
}

double unhidden(const Hardware& hardware, double communication, double work) {
  return std::max(0.0, communication - work) + hardware.overlap_cost * std::min(communication, work);
}

double hop_seconds(const Hardware& hardware, const std::vector<int>& ranks, double bytes) {
  const bool inside = near(hardware, ranks) == static_cast<int>(ranks.size());
  const Link& link = inside ? hardware.intra_node : hardware.inter_node;
  return bytes / speed(link) + link.latency;
}

}  // namespace colonnade::cost
