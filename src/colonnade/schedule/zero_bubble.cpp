// Schedules whose weight gradients fill the gaps: ZB-H1, ZB-V and DualPipe-V.
#include <algorithm>
#include <array>

#include "colonnade/schedule/writer.h"

namespace colonnade::schedule {
namespace {

/// Writes one rank of a V and counts its micro-batches: what it appends is always the next one of a chunk.
/// Chunk 0 is on the way down, chunk 1 on the way up.
class Vee {
 public:
  Vee(const Schedule& schedule, int rank) : writer_(schedule, rank) {}

  void forward(int chunk) { writer_.forward(next(ahead_, chunk)); }
  void backward(int chunk) { writer_.backward(next(back_, chunk)); }
  void backward_input(int chunk) { writer_.backward_input(next(back_, chunk)); }
  void weights() { writer_.weights(); }
  void all_weights() { writer_.all_weights(); }
  /// Both gradients, that of the input on its way before the weights are begun.
  void backward_in_two(int chunk) {
    backward_input(chunk);
    weights();
  }
  /// A forward beside a whole backward of the other chunk.
  void pair(int chunk, bool joined) {
    if (joined) return writer_.joined(next(ahead_, chunk), next(back_, 1 - chunk));
    forward(chunk);
    backward(1 - chunk);
  }
  Program take() { return writer_.take(); }

 private:
  using Counts = std::array<int, 2>;
  static ChunkStep next(Counts& counts, int chunk) {
    return {chunk, counts[static_cast<std::size_t>(chunk)]++};
  }

  Writer writer_;
  Counts ahead_{}, back_{};
};

/// `rank` counts from the top of the V, `below` how many ranks lie under it.
Program zb_v_of(const Schedule& schedule, int rank) {
  const int below = schedule.ranks - 1 - rank;
  const int microbatches = std::max(schedule.microbatches, 2 * schedule.ranks - 1);
  Vee v(schedule, rank);
  // What can run before the first micro-batch is up again: chunk 0 alone, then beside chunk 1.
  const int first = 2 * below + 1;
  for (int i = 0; i < first; ++i) v.forward(0);
  for (int i = 0; i < rank; ++i) {
    v.forward(1);
    v.forward(0);
  }
  // Gradients come back over chunk 1; chunk 0 waits for its own.
  for (int i = 0; i <= below; ++i) {
    v.forward(1);
    v.backward_in_two(1);
  }
  // One of each on both chunks, until every forward has run.
  for (int ahead = first + rank, up = rank + below + 1; up < microbatches; ++ahead, ++up) {
    if (ahead < microbatches) v.forward(0);
    v.backward_in_two(0);
    v.forward(1);
    v.backward_in_two(1);
  }
  // The gradients that others wait for, then the weights.
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

Program dualpipe_v_of(const Schedule& schedule, int rank, bool joined) {
  const int below = schedule.ranks - 1 - rank;
  const int microbatches = std::max(schedule.microbatches, 2 * schedule.ranks);
  Vee v(schedule, rank);
  for (int i = 0; i < 2 * below; ++i) v.forward(0);
  for (int i = 0; i <= rank; ++i) {
    v.forward(0);
    v.forward(1);
  }
  for (int i = 0; i < below; ++i) {
    v.backward_in_two(1);
    v.forward(1);
  }
  // Down and up meet: each chunk's forward beside the other's backward.
  for (int i = 0; i < microbatches - schedule.ranks - below; ++i) {
    const bool at_the_turn = below == 0 && i == 0;  // its first gradient needs this very forward's neighbour
    v.pair(0, joined && !at_the_turn);
    v.pair(1, joined);
  }
  for (int i = 0; i < below; ++i) {
    v.backward(1);
    v.pair(1, joined);
  }
  // Only backwards are left. From the middle on their weights wait, to fill what the ranks below leave idle.
  const int whole = rank + 1;
  for (int i = 0; i < 2 * (rank + 1); ++i) i < whole ? v.backward(1 - i % 2) : v.backward_input(1 - i % 2);
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
    Writer writer(schedule, rank);
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
  for (int rank = 0; rank < ranks; ++rank) schedule.programs.push_back(zb_v_of(schedule, rank));
  return schedule;
}

Schedule dualpipe_v(int ranks, int microbatches, bool joined) {
  Schedule schedule = empty_schedule(Placement::vee(ranks), microbatches, "dualpipe-v");
  for (int rank = 0; rank < ranks; ++rank) schedule.programs.push_back(dualpipe_v_of(schedule, rank, joined));
  return schedule;
}

}  // namespace colonnade::schedule
