// Schedules that fill pipeline bubbles with weight gradients: ZB-H1, ZB-V and DualPipe-V.
#include <algorithm>
#include <array>

#include "colonnade/schedule/writer.h"

namespace colonnade::schedule {
namespace {

/// Writes one rank of a V schedule; every call appends the next micro-batch of a chunk. Chunk 0 is on the
/// descending branch of the V, chunk 1 on the ascending one.
class VeeWriter {
 public:
  VeeWriter(const Schedule& schedule, int rank) : writer_(schedule, rank) {}

  void forward(int chunk) { writer_.forward(next(forwards_, chunk)); }
  void backward(int chunk) { writer_.backward(next(backwards_, chunk)); }
  void backward_input(int chunk) { writer_.backward_input(next(backwards_, chunk)); }
  void weights() { writer_.weights(); }
  void all_weights() { writer_.all_weights(); }
  /// Input gradient, sent before the weight gradients start.
  void split_backward(int chunk) {
    backward_input(chunk);
    weights();
  }
  /// Forward of a chunk and full backward of the other one.
  void pair(int chunk, bool overlapped) {
    if (overlapped) return writer_.overlapped(next(forwards_, chunk), next(backwards_, 1 - chunk));
    forward(chunk);
    backward(1 - chunk);
  }
  Program take() { return writer_.take(); }

 private:
  using Counts = std::array<int, 2>;
  static ChunkStep next(Counts& counts, int chunk) {
    return {chunk, counts[static_cast<std::size_t>(chunk)]++};
  }

  ProgramWriter writer_;
  Counts forwards_{}, backwards_{};
};

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

Schedule dualpipe_v(int ranks, int microbatches, bool overlapped) {
  Schedule schedule = empty_schedule(Placement::vee(ranks), microbatches, "dualpipe-v");
  for (int rank = 0; rank < ranks; ++rank)
    schedule.programs.push_back(dualpipe_v_program(schedule, rank, overlapped));
  return schedule;
}

}  // namespace colonnade::schedule
