// Rings, all-to-alls and hops by hand, within and between nodes.
#include "colonnade/cost/interconnect.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cost/ideal.h"

namespace colonnade::cost {
namespace {

/// 200 bytes/s within a node of 8, 50 between nodes.
Hardware slow() {
  Hardware h = test::ideal();
  h.intra_node = {400, 0.5, 1};
  h.inter_node = {50, 1, 3};
  return h;
}

TEST(Interconnect, RingAcrossNodesSharesThePortsOfANode) {
  const layout::Mesh mesh(test::layout(64, 4, 2));  // tp 4, dp 8, pp 2
  const Ring tensor = ring_of(slow(), mesh, {layout::Axis::kTp});
  EXPECT_EQ(tensor.ranks, 4);
  EXPECT_DOUBLE_EQ(tensor.bandwidth, 200);
  EXPECT_DOUBLE_EQ(tensor.seconds(800), 800 * 0.75 / 200 + 3);
  const Ring data = ring_of(slow(), mesh, {layout::Axis::kDp});  // two of its ranks per node
  EXPECT_EQ(data.ranks, 8);
  EXPECT_DOUBLE_EQ(data.bandwidth, 100);
  EXPECT_DOUBLE_EQ(data.latency, 3);
}

TEST(Interconnect, AllToAllUsesBothLinksAtOnce) {
  const AllToAll inside = all_to_all_of(slow(), {0, 1, 2, 3});
  EXPECT_DOUBLE_EQ(inside.seconds(800), 800 * 0.75 / 200 + 1) << "a quarter stays local";
  const AllToAll both = all_to_all_of(slow(), {0, 2, 4, 6, 8, 10, 12, 14});  // two nodes
  EXPECT_EQ(both.nodes, 2);
  EXPECT_DOUBLE_EQ(both.seconds(800), 800 * 0.5 / 50 + 3)
      << "half of it leaves the node, each rank by its own port";
  EXPECT_EQ(all_to_all_of(slow(), {5}).seconds(800), 0);
}

TEST(Interconnect, SendsATokenOncePerNode) {
  const AllToAll e = all_to_all_of(slow(), {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  EXPECT_DOUBLE_EQ(e.seconds(1600), 1600 * 0.5 / 50 + 3);
  // 2 (1 - 2^-8) of two nodes have some of 8 experts: one copy each instead of 8 rows.
  EXPECT_NEAR(e.seconds_once_per_node(1600, 8), 1600 * 0.5 * 2 * (1 - std::pow(0.5, 8)) / 8 / 50 + 3, 1e-9);
  EXPECT_DOUBLE_EQ(e.seconds_once_per_node(1600, 1), e.seconds(1600)) << "one row is one row";
}

TEST(Interconnect, SlowestHopDecides) {
  EXPECT_DOUBLE_EQ(hop_seconds(slow(), {0, 2, 4, 6}, 400), 400.0 / 200 + 1);
  EXPECT_DOUBLE_EQ(hop_seconds(slow(), {0, 4, 8, 12}, 400), 400.0 / 50 + 3);
}

}  // namespace
}  // namespace colonnade::cost
