// Builder of a rank's program, which adds the transfers of each action. Private to schedule/.
#pragma once

#include <deque>

#include "colonnade/schedule/program.h"

namespace colonnade::schedule {

/// Schedule of the given sizes without programs. Throws ConfigError if a size is below 1.
Schedule empty_schedule(Placement placement, int microbatches, const char* kind);

/// Appends actions of one rank. Micro-batches beyond the schedule's number are skipped, so that the pattern
/// of many micro-batches also generates schedules of few.
class ProgramWriter {
 public:
  ProgramWriter(const Schedule& schedule, int rank)
      : placement_(schedule.placement), rank_(rank), microbatches_(schedule.microbatches) {}

  void forward(ChunkStep step) {
    recv_input(step);
    add(ActionKind::kForward, step);
    send_output(step);
  }
  void backward(ChunkStep step) {
    recv_gradient(step);
    add(ActionKind::kBackward, step);
    send_gradient(step);
  }
  /// Input gradient; the weight gradients are deferred to weights().
  void backward_input(ChunkStep step) {
    recv_gradient(step);
    add(ActionKind::kBackwardInput, step);
    send_gradient(step);
    deferred_.push_back(step);
  }
  /// Oldest deferred weight gradients.
  void weights() {
    add(ActionKind::kBackwardWeight, deferred_.front());
    deferred_.pop_front();
  }
  void all_weights() {
    while (!deferred_.empty()) weights();
  }
  /// A pair (starts_pair), with the transfers before and after both passes.
  void pair(ChunkStep forward, ChunkStep backward) {
    recv_input(forward);
    recv_gradient(backward);
    add(ActionKind::kForward, forward);
    add(ActionKind::kBackward, backward);
    send_output(forward);
    send_gradient(backward);
  }
  /// The two as a pair, or one after the other.
  void step(ChunkStep f, ChunkStep b, bool paired) {
    if (paired) return pair(f, b);
    forward(f);
    backward(b);
  }
  Program take() { return std::move(program_); }

 private:
  [[nodiscard]] int stage(ChunkStep step) const { return placement_.stage(rank_, step.chunk); }
  void recv_input(ChunkStep step) {
    if (placement_.crosses(stage(step) - 1)) add(ActionKind::kRecvActivation, step);
  }
  void send_output(ChunkStep step) {
    if (placement_.crosses(stage(step))) add(ActionKind::kSendActivation, step);
  }
  void recv_gradient(ChunkStep step) {
    if (placement_.crosses(stage(step))) add(ActionKind::kRecvGradient, step);
  }
  void send_gradient(ChunkStep step) {
    if (placement_.crosses(stage(step) - 1)) add(ActionKind::kSendGradient, step);
  }
  void add(ActionKind kind, ChunkStep step) {
    if (step.microbatch < microbatches_) program_.push_back({kind, step.chunk, step.microbatch});
  }

  const Placement& placement_;
  int rank_;
  int microbatches_;
  std::deque<ChunkStep> deferred_;
  Program program_;
};

}  // namespace colonnade::schedule
