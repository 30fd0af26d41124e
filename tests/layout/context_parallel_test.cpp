// Communication types of layers.
#include "colonnade/layout/context_parallel.h"

#include <gtest/gtest.h>

#include "colonnade/base/error.h"

namespace colonnade::layout {
namespace {

TEST(ContextParallel, LayersFollowCpCommType) {
  config::Parallel p;
  p.context_parallel_size = 8;
  p.hierarchical_context_parallel_sizes = {4, 2};
  const auto layer = [&](std::int64_t i) {
    const LayerContextParallel l = context_layer(p, i);
    return std::array<int, 3>{l.heads, l.ring, l.gathers ? 1 : 0};
  };
  EXPECT_EQ(layer(5), (std::array{1, 8, 0}));
  p.cp_comm_type = {"a2a", "all_gather", "a2a+p2p", "p2p"};
  EXPECT_EQ(layer(0), (std::array{8, 1, 0}));
  EXPECT_EQ(layer(1), (std::array{1, 8, 1}));
  EXPECT_EQ(layer(2), (std::array{4, 2, 0}));
  EXPECT_EQ(layer(3), (std::array{1, 8, 0}));
}

}  // namespace
}  // namespace colonnade::layout
