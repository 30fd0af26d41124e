// What the functions that make schedules share: a rank's actions, each with the transfers it needs.
#pragma once

#include <deque>

#include "colonnade/schedule/program.h"

namespace colonnade::schedule {

/// A schedule of the right sizes without programs. Throws ConfigError where one is below 1.
Schedule empty_schedule(Placement placement, int microbatches, const char* kind);

/// Appends actions of one rank. Micro-batches that the schedule does not have are left out: a schedule of few
/// micro-batches is one of many without those that do not exist.
class Writer {
 public:
  Writer(const Schedule& schedule, int rank)
      : placement_(schedule.placement), rank_(rank), microbatches_(schedule.microbatches) {}

  void forward(ChunkStep step) {
    take_input(step);
    add(Do::kForward, step);
    hand_on(step);
  }
  void backward(ChunkStep step) {
    take_gradient(step);
    add(Do::kBackward, step);
    hand_back(step);
  }
  /// The input gradient now, its weights' with the next weights().
  void backward_input(ChunkStep step) {
    take_gradient(step);
    add(Do::kBackwardInput, step);
    hand_back(step);
    waiting_.push_back(step);
  }
  /// The weight gradients that have waited longest.
  void weights() {
    add(Do::kBackwardWeight, waiting_.front());
    waiting_.pop_front();
  }
  void all_weights() {
    while (!waiting_.empty()) weights();
  }
  /// Forward of one, backward of another, as one action: transfers around both.
  void joined(ChunkStep ahead, ChunkStep back) {
    take_input(ahead);
    take_gradient(back);
    add(Do::kForward, ahead);
    add(Do::kBackward, back);
    hand_on(ahead);
    hand_back(back);
  }
  Program take() { return std::move(program_); }

 private:
  [[nodiscard]] int stage(ChunkStep step) const { return placement_.stage(rank_, step.chunk); }
  void take_input(ChunkStep step) {
    if (placement_.crosses(stage(step) - 1)) add(Do::kRecvActivation, step);
  }
  void hand_on(ChunkStep step) {
    if (placement_.crosses(stage(step))) add(Do::kSendActivation, step);
  }
  void take_gradient(ChunkStep step) {
    if (placement_.crosses(stage(step))) add(Do::kRecvGradient, step);
  }
  void hand_back(ChunkStep step) {
    if (placement_.crosses(stage(step) - 1)) add(Do::kSendGradient, step);
  }
  void add(Do act, ChunkStep step) {
    if (step.microbatch < microbatches_) program_.push_back({act, step.chunk, step.microbatch});
  }

  const Placement& placement_;
  int rank_;
  int microbatches_;
  std::deque<ChunkStep> waiting_;
  Program program_;
};

}  // namespace colonnade::schedule
