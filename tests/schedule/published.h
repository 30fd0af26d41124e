// Makespans of published schedules, if forward, input gradient and weight gradient take equally long.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "colonnade/schedule/program.h"

namespace colonnade::schedule {

inline constexpr ActionCosts kEqual{.forward = 1, .backward = 2, .transfer = 0, .weight = 1};
inline constexpr double kTolerance = 0.02;  // relative to the published makespan

struct Size {
  int ranks, microbatches;
};
/// At least twice as many micro-batches as ranks.
inline std::vector<Size> published_sizes() {
  std::vector<Size> sizes;
  for (int p = 1; p <= 16; ++p)
    for (int m = 2 * p; m <= 64; ++m) sizes.push_back({p, m});
  return sizes;
}

inline void expect_published(double got, double published, const Size& size) {
  EXPECT_NEAR(got, published, kTolerance * published) << size.ranks << " ranks " << size.microbatches;
}

}  // namespace colonnade::schedule
