// Zero-bubble schedules, which fill pipeline bubbles with weight gradients: ZB-H1 and ZB-V.
// Source: Qi et al. 2023 (Zero Bubble Pipeline Parallelism).
#include <algorithm>

#include "colonnade/schedule/vee_writer.h"

namespace colonnade::schedule {
namespace {

/// Program of one rank; `below` is the number of ranks after it.
Program zb_v_program(const Schedule& schedule, int rank) {
  const int below = schedule.ranks - 1 - rank;
  const int microbatches = std::max(schedule.microbatches, 2 * schedule.ranks - 1);
  VeeWriter v(schedule, rank);
  // Warm-up before the first backward: chunk 0 alone, then alternating with chunk 1.
  const int warmup = 2 * below + 1;
  for (int i = 0; i < warmup; ++i) v.forward(0);
  for (int i = 0; i < rank; ++i) {
    v.forward(1);
    v.forward(0);
  }
  // Backward passes of chunk 1 start; chunk 0 has no gradients yet.
  for (int i = 0; i <= below; ++i) {
    v.forward(1);
    v.split_backward(1);
  }
  // Steady state: one forward and one backward per chunk, until every forward has run.
  for (int down = warmup + rank, up = rank + below + 1; up < microbatches; ++down, ++up) {
    if (down < microbatches) v.forward(0);
    v.split_backward(0);
    v.forward(1);
    v.split_backward(1);
  }
  // Cool-down: input gradients first, then the deferred weight gradients.
  for (int i = 0; i < rank; ++i) {
    v.backward_input(0);
    v.backward_input(1);
  }
  for (int i = 0; i <= below; ++i) {
    v.backward_input(0);
    v.weights();
  }
  v.all_weights();
  return v.take();
}

}  // namespace

Schedule zb_h1(int ranks, int microbatches) {
  Schedule schedule = empty_schedule(Placement::loop(ranks, 1), microbatches, "zb-h1");
  for (int rank = 0; rank < ranks; ++rank) {
    ProgramWriter writer(schedule, rank);
    const int warmup = ranks - 1 - rank;
    for (int m = 0; m < warmup; ++m) writer.forward({0, m});
    for (int m = 0; m < microbatches; ++m) {
      writer.forward({0, m + warmup});
      writer.backward_input({0, m});
      if (m >= rank) writer.weights();
    }
    writer.all_weights();
    schedule.programs.push_back(writer.take());
  }
  return schedule;
}

Schedule zb_v(int ranks, int microbatches) {
  Schedule schedule = empty_schedule(Placement::vee(ranks), microbatches, "zb-v");
  for (int rank = 0; rank < ranks; ++rank) schedule.programs.push_back(zb_v_program(schedule, rank));
  return schedule;
}

}  // namespace colonnade::schedule
