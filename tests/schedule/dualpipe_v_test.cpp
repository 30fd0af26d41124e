// DualPipe-V against the technical report of DeepSeek-V3.
#include "colonnade/schedule/program.h"
#include "schedule/published.h"

namespace colonnade::schedule {
namespace {

// DeepSeek's table: (PP/2 - 1)(F&B + B - 3W) with PP stages, B a full backward, F&B one overlapped pair.
TEST(DualPipeV, HasThePublishedMakespan) {
  for (const Size& size : published_sizes()) {
    const double stages = 2.0 * size.ranks, backward = kEqual.backward, pair = kEqual.forward + backward;
    const double published =
        6.0 * size.microbatches + (stages / 2 - 1) * (pair + backward - 3 * kEqual.weight);
    const Timeline overlapped =
        simulate(dualpipe_v(size.ranks, size.microbatches, /*overlapped=*/true), kEqual);
    expect_published(overlapped.makespan, published, size);
    EXPECT_DOUBLE_EQ(overlapped.makespan, published);
    // Sequential pairs send the forward output sooner, which leaves half of the bubble.
    const Timeline sequential = simulate(dualpipe_v(size.ranks, size.microbatches), kEqual);
    EXPECT_DOUBLE_EQ(sequential.makespan, 6.0 * size.microbatches + size.ranks - 1);
  }
}

}  // namespace
}  // namespace colonnade::schedule
