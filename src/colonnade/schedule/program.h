// A schedule is data: what each pipeline rank does, in order. Printed, drawn, checked for deadlock,
// simulated and executed from the same list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "colonnade/schedule/placement.h"

namespace colonnade::config {
struct Parallel;
}

namespace colonnade::schedule {

enum class Do : std::uint8_t {
  kForward,         ///< run the chunk's blocks on a micro-batch
  kBackward,        ///< gradients of inputs and weights
  kBackwardInput,   ///< B: the gradient of the input, which the stage before waits for
  kBackwardWeight,  ///< W: what kBackwardInput left, the gradients of weights
  kSendActivation,  ///< to the rank of the next virtual stage
  kRecvActivation,  ///< from the rank of the previous virtual stage
  kSendGradient,    ///< to the rank of the previous virtual stage
  kRecvGradient,    ///< from the rank of the next virtual stage
};

/// Whether an action gives the gradient of a chunk's input.
[[nodiscard]] constexpr bool gives_input_gradient(Do act) {
  return act == Do::kBackward || act == Do::kBackwardInput;
}
/// Whether an action completes what a micro-batch adds to the gradients of a chunk's weights.
[[nodiscard]] constexpr bool ends_backward(Do act) {
  return act == Do::kBackward || act == Do::kBackwardWeight;
}
[[nodiscard]] constexpr bool is_send(Do act) {
  return act == Do::kSendActivation || act == Do::kSendGradient;
}
[[nodiscard]] constexpr bool is_receive(Do act) {
  return act == Do::kRecvActivation || act == Do::kRecvGradient;
}
[[nodiscard]] constexpr bool is_transfer(Do act) { return is_send(act) || is_receive(act); }
/// What a run without gradients does.
[[nodiscard]] constexpr bool is_forward_part(Do act) {
  return act == Do::kForward || act == Do::kSendActivation || act == Do::kRecvActivation;
}

/// One action. `chunk` counts the virtual stages of this rank from 0; Schedule::placement says which stages
/// these are. Of a transfer, `chunk` is the own chunk of the rank that performs the action: the one that made
/// the value, or the one that will use it.
///
/// Between two virtual stages of one rank no transfer exists: the value goes from one chunk to the next in
/// memory.
struct Action {
  Do act = Do::kForward;
  int chunk = 0;
  int microbatch = 0;
  friend bool operator==(const Action&, const Action&) = default;
};

/// One rank's actions in order. Sends never wait; receives wait for their value. Values of one kind
/// between two ranks are received in the order in which they were sent, so no tags are needed.
using Program = std::vector<Action>;

struct Schedule {
  int ranks = 1;   ///< pipeline ranks
  int chunks = 1;  ///< virtual stages per rank
  int microbatches = 1;
  std::string kind;               ///< "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v"
  Placement placement;            ///< of ranks * chunks virtual stages
  std::vector<Program> programs;  ///< one per rank

  [[nodiscard]] int stages() const { return placement.stages(); }  ///< virtual stages
  [[nodiscard]] int stage(int rank, const Action& a) const { return placement.stage(rank, a.chunk); }
};

/// All forwards, then all backwards in the same order of micro-batches.
Schedule gpipe(int ranks, int microbatches);
/// Fill the pipe, alternate, drain. Live micro-batches on rank r: min(ranks - r, microbatches).
/// Source: Narayanan et al. 2021 (PipeDream-Flush); Megatron's core/pipeline_parallel/schedules.py.
Schedule one_f_one_b(int ranks, int microbatches);
/// Interleaved 1F1B with `chunks` virtual stages per rank and groups of `group` micro-batches
/// (Megatron's microbatch_group_size_per_virtual_pipeline_stage, default ranks).
/// Throws ConfigError unless ranks <= group <= microbatches and microbatches % group is 0 or >= ranks.
Schedule interleaved(int ranks, int chunks, int microbatches, int group);
/// ZB-H1: 1F1B whose weight gradients wait, on rank r for r micro-batches, so that every rank is busy from
/// its first action to its last and gradients go up sooner. Live micro-batches on every rank: as many as on
/// 1F1B's first, min(ranks, microbatches). Source: Qi et al. 2023 (Zero Bubble Pipeline Parallelism).
Schedule zb_h1(int ranks, int microbatches);
/// ZB-V: two chunks placed as a V, no idle time on any rank between its first and its last action when
/// forward, input and weight gradients take equally long. Live (micro-batch, chunk) pairs: 2 * ranks at most,
/// the memory of 1F1B's first rank. Source: Qi et al. 2023, section 6.
Schedule zb_v(int ranks, int microbatches);
/// DualPipe-V: two chunks placed as a V; micro-batches on their way down and up meet in pairs of a forward
/// and a whole backward. Live pairs: 2 * ranks + 1 at most. A pair runs one after the other, each part sent
/// when it is done; `joined`: as published, as one action of a device that overlaps both, with the transfers
/// around it. Source: DeepSeek-V3 technical report 2024 and its "cut in half" form, DualPipeV.
Schedule dualpipe_v(int ranks, int microbatches, bool joined = false);

/// The same with every whole backward in two: the gradient of the input, which is sent at once, then those of
/// the weights (Megatron's --delay-wgrad-compute).
Schedule with_delayed_weights(Schedule schedule);

/// A micro-batch on one of a rank's chunks.
struct ChunkStep {
  int chunk;
  int microbatch;
};
/// The order of forwards of interleaved(), equal on all ranks: for each group of micro-batches, for
/// each chunk, for each micro-batch. Backwards follow the same list with chunk -> chunks - 1 - chunk.
std::vector<ChunkStep> interleaved_order(int chunks, int microbatches, int group);

/// The schedule that the settings ask for (schedule_kinds.h). `chunks` is split_stages(...).size() / pipeline
/// size. Throws ConfigError.
Schedule make_schedule(const config::Parallel& parallel, int chunks, int microbatches);

/// What the checker proves about a schedule.
struct ScheduleReport {
  std::vector<std::string> faults;  ///< empty: sound
  /// Per rank: most (micro-batch, chunk) pairs between their forward and the end of their backward.
  std::vector<int> peak_live;
  /// Per rank: most pairs between input and weight gradient, whose activations are free but for what the
  /// weight gradients need.
  std::vector<int> peak_waiting;
};
/// Every (chunk, micro-batch) runs forward once, then backward once, whole or as input and then weight
/// gradient; every send meets its receive; nothing waits forever; inputs arrive before they are used and in
/// the order they were sent.
/// Faults name rank, action and reason. Time: linear in the number of actions.
ScheduleReport check(const Schedule& schedule);

/// Times of one chunk's actions, in any unit.
struct ActionCosts {
  double forward = 1, backward = 2, transfer = 0;
  double weight = 1;  ///< what of `backward` the weight gradients take
};
struct Timeline {
  struct Span {
    int rank;
    Action action;
    double begin, end;
  };
  std::vector<Span> spans;
  double makespan = 0;
  double bubble_fraction = 0;  ///< idle share of all ranks until the makespan
  /// Longest time of a rank from the begin of its first span to the end of its last: what papers on
  /// zero-bubble schedules count, where ranks may begin the next step at different times.
  double longest_rank = 0;
};
/// When each forward and backward runs if every rank works as soon as it can. Transfers occupy no
/// rank, they only arrive `transfer` later. Spans are ordered by rank, then by time. Throws Error
/// when the schedule does not end (check it first).
Timeline simulate(const Schedule& schedule, const ActionCosts& costs);

/// The timeline as a self-contained SVG picture, readable on light and dark pages, and as terminal
/// rows ("F0 F1 B0 ...", where W0 are weight gradients that B0 left; chunks after the first add a letter:
/// "F0b"). One row per rank.
std::string paint_svg(const Timeline& timeline, const Schedule& schedule);
std::string paint_text(const Timeline& timeline, const Schedule& schedule);

}  // namespace colonnade::schedule
