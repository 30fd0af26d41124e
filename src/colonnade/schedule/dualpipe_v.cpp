// DualPipe-V: the forward of one chunk is paired with the backward of the other.
// Source: DeepSeek-V3 technical report 2024; its half-size form DualPipeV.
#include <algorithm>

#include "colonnade/schedule/vee_writer.h"

namespace colonnade::schedule {
namespace {

/// Program of one rank; `below` is the number of ranks after it.
Program dualpipe_v_program(const Schedule& schedule, int rank, bool overlapped) {
  const int below = schedule.ranks - 1 - rank;
  const int microbatches = std::max(schedule.microbatches, 2 * schedule.ranks);
  VeeWriter v(schedule, rank);
  for (int i = 0; i < 2 * below; ++i) v.forward(0);
  for (int i = 0; i <= rank; ++i) {
    v.forward(0);
    v.forward(1);
  }
  for (int i = 0; i < below; ++i) {
    v.split_backward(1);
    v.forward(1);
  }
  // Steady state: each chunk's forward paired with the other chunk's backward.
  for (int i = 0; i < microbatches - schedule.ranks - below; ++i) {
    // As in DualPipeV, the last rank does not overlap its first pair, which shortens the bubble.
    const bool first_of_last_rank = below == 0 && i == 0;
    v.pair(0, overlapped && !first_of_last_rank);
    v.pair(1, overlapped);
  }
  for (int i = 0; i < below; ++i) {
    v.backward(1);
    v.pair(1, overlapped);
  }
  // Cool-down: only backward passes. The second half defers weight gradients to fill the bubbles.
  const int full = rank + 1;
  for (int i = 0; i < 2 * (rank + 1); ++i) i < full ? v.backward(1 - i % 2) : v.backward_input(1 - i % 2);
  for (int i = 0; i < below; ++i) {
    v.weights();
    v.backward_input(0);
  }
  v.all_weights();
  return v.take();
}

}  // namespace

Schedule dualpipe_v(int ranks, int microbatches, bool overlapped) {
  Schedule schedule = empty_schedule(Placement::vee(ranks), microbatches, "dualpipe-v");
  schedule.pairs_passes = overlapped;
  for (int rank = 0; rank < ranks; ++rank)
    schedule.programs.push_back(dualpipe_v_program(schedule, rank, overlapped));
  return schedule;
}

}  // namespace colonnade::schedule
