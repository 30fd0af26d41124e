// Writer of the programs of V schedules. Private to the schedules.
#pragma once

#include <array>
#include <cstddef>

#include "colonnade/schedule/writer.h"

namespace colonnade::schedule {

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
    writer_.step(next(forwards_, chunk), next(backwards_, 1 - chunk), overlapped);
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

}  // namespace colonnade::schedule
