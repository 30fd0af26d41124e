// The bubble of simulated schedules against its closed form.
#include "colonnade/schedule/bubble.h"

#include <gtest/gtest.h>

namespace colonnade::schedule {
namespace {

TEST(Bubble, HasItsClosedForm) {
  for (int p = 1; p <= 6; ++p)
    for (const int groups : {1, 2, 5}) {
      const int m = groups * p;
      const double flat = (p - 1.0) / (m + p - 1);
      EXPECT_NEAR(bubble_fraction(simulate(gpipe(p, m), {}), p), flat, 1e-12) << p << " ranks " << m;
      EXPECT_NEAR(bubble_fraction(simulate(one_f_one_b(p, m), {}), p), flat, 1e-12) << p << " ranks " << m;
      for (const int v : {2, 4})
        EXPECT_NEAR(bubble_fraction(simulate(interleaved(p, v, m, p), {}), p), (p - 1.0) / (m * v + p - 1),
                    1e-12)
            << p << " ranks " << m << " chunks " << v;
    }
}

TEST(Bubble, IsNoneOfAnEmptyTimeline) { EXPECT_EQ(bubble_fraction({}, 4), 0); }

}  // namespace
}  // namespace colonnade::schedule
