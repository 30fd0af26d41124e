// Pipeline schedules as data: the ordered actions of each pipeline rank. The same lists are printed, drawn,
// checked for deadlock, simulated and executed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "colonnade/schedule/placement.h"

namespace colonnade::config {
struct Parallel;
}

namespace colonnade::schedule {

enum class ActionKind : std::uint8_t {
  kForward,         ///< forward pass of the chunk on a micro-batch
  kBackward,        ///< input and weight gradients
  kBackwardInput,   ///< B: input gradient only
  kBackwardWeight,  ///< W: weight gradients deferred by kBackwardInput
  kSendActivation,  ///< to the rank of the next virtual stage
  kRecvActivation,  ///< from the rank of the previous virtual stage
  kSendGradient,    ///< to the rank of the previous virtual stage
  kRecvGradient,    ///< from the rank of the next virtual stage
};

/// Whether an action computes the input gradient of a chunk.
[[nodiscard]] constexpr bool computes_input_grad(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kBackwardInput;
}
/// Whether an action completes a micro-batch's contribution to a chunk's weight gradients.
[[nodiscard]] constexpr bool completes_backward(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kBackwardWeight;
}
[[nodiscard]] constexpr bool is_send(ActionKind kind) {
  return kind == ActionKind::kSendActivation || kind == ActionKind::kSendGradient;
}
[[nodiscard]] constexpr bool is_receive(ActionKind kind) {
  return kind == ActionKind::kRecvActivation || kind == ActionKind::kRecvGradient;
}
[[nodiscard]] constexpr bool is_transfer(ActionKind kind) { return is_send(kind) || is_receive(kind); }
/// Whether a forward-only run performs the action.
[[nodiscard]] constexpr bool runs_in_forward_only(ActionKind kind) {
  return kind == ActionKind::kForward || kind == ActionKind::kSendActivation ||
         kind == ActionKind::kRecvActivation;
}

/// Action of one pipeline rank. `chunk` counts the virtual stages of this rank from 0; Schedule::placement
/// maps them to stages. A transfer names the chunk of the rank that performs it: the producer's for a send,
/// the consumer's for a receive.
///
/// Consecutive virtual stages on one rank need no transfer: the tensor stays in memory.
struct Action {
  ActionKind kind = ActionKind::kForward;
  int chunk = 0;
  int microbatch = 0;
  friend bool operator==(const Action&, const Action&) = default;
};

/// Actions of one rank, in order. Sends never block; receives block until the tensor arrives. Activations,
/// and gradients, between two ranks are received in send order, so no tags are needed.
using Program = std::vector<Action>;

struct Schedule {
  int ranks = 1;   ///< pipeline ranks
  int chunks = 1;  ///< virtual stages per rank
  int microbatches = 1;
  std::string kind;               ///< "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v"
  Placement placement;            ///< ranks * chunks virtual stages
  std::vector<Program> programs;  ///< one per rank
  bool pairs_passes = false;      ///< passes run in pairs (starts_pair)

  [[nodiscard]] int stages() const { return placement.stages(); }  ///< virtual stages
  [[nodiscard]] int stage(int rank, const Action& a) const { return placement.stage(rank, a.chunk); }
};

/// Whether actions `i` and `i` + 1 of a program run as a pair: the forward pass of one micro-batch and the
/// backward pass of another, without transfers between them. The two take turns (base/turns.h), so that the
/// communication of one overlaps with the compute of the other. Adjacent passes of one micro-batch depend on
/// each other and are no pair.
[[nodiscard]] inline bool starts_pair(const Schedule& schedule, const Program& program, std::size_t i) {
  return schedule.pairs_passes && i + 1 < program.size() && program[i].kind == ActionKind::kForward &&
         computes_input_grad(program[i + 1].kind) && program[i].microbatch != program[i + 1].microbatch;
}

/// GPipe: all forward passes, then all backward passes in the same micro-batch order.
Schedule gpipe(int ranks, int microbatches);
/// 1F1B: warm-up, steady state, cool-down. In-flight micro-batches on rank r: min(ranks - r, microbatches).
/// Source: Narayanan et al. 2021 (PipeDream-Flush); Megatron's core/pipeline_parallel/schedules.py.
///
/// With `paired`, the forward and backward pass of a steady-state step are a pair, received before it and
/// sent after it. A pair passes on results only when both are done, so a rank warms up with 2 micro-batches
/// more than the next one, and the last rank with 1: 2 (ranks - r) micro-batches are in flight, and the
/// bubble stays that of 1F1B. One rank: F0, F1 with B0, F2 with B1, ... Source: Megatron's
/// core/pipeline_parallel/combined_1f1b.py, which has it for one rank and for virtual stages.
Schedule one_f_one_b(int ranks, int microbatches, bool paired = false);
/// Interleaved 1F1B with `chunks` virtual stages per rank and groups of `group` micro-batches (Megatron's
/// microbatch_group_size_per_virtual_pipeline_stage, default ranks). Throws ConfigError unless ranks <= group
/// <= microbatches and microbatches % group is 0 or >= ranks. With `paired`, as above: the warm-up, which
/// already grows by 2 per rank, is one forward pass longer.
Schedule interleaved(int ranks, int chunks, int microbatches, int group, bool paired = false);
/// ZB-H1: 1F1B with weight gradients delayed by r micro-batches on rank r, so that input gradients are sent
/// sooner and every rank is busy from its first action to its last. In-flight micro-batches on every rank:
/// min(ranks, microbatches), as on the first rank of 1F1B. Source: Qi et al. 2023 (Zero Bubble Pipeline
/// Parallelism).
Schedule zb_h1(int ranks, int microbatches);
/// ZB-V: two chunks per rank in V placement. No bubble on any rank between its first and its last action if
/// forward, input gradient and weight gradient take equally long. In-flight (micro-batch, chunk) pairs: at
/// most 2 * ranks, the memory of the first rank of 1F1B. Source: Qi et al. 2023, section 6.
Schedule zb_v(int ranks, int microbatches);
/// DualPipe-V: two chunks per rank in V placement; in steady state the forward of one chunk is paired with a
/// full backward of the other. In-flight (micro-batch, chunk) pairs: at most 2 * ranks + 1. The two passes
/// run one after the other and each result is sent when done; with `overlapped`, as published, they are a
/// pair (starts_pair) with the transfers around it. Source: DeepSeek-V3 technical report 2024 and its
/// half-size form, DualPipeV.
Schedule dualpipe_v(int ranks, int microbatches, bool overlapped = false);

/// `schedule` with every full backward split: the input gradient, which is sent at once, then the weight
/// gradients (Megatron's --delay-wgrad-compute).
Schedule with_delayed_wgrad(Schedule schedule);

/// Micro-batch on a model chunk of a rank.
struct ChunkStep {
  int chunk;
  int microbatch;
};
/// Forward order of interleaved(), the same on all ranks: for each group of micro-batches, for each chunk,
/// for each micro-batch. Backward passes follow the same list with chunk -> chunks - 1 - chunk.
std::vector<ChunkStep> interleaved_order(int chunks, int microbatches, int group);

/// Schedule that the settings select (kinds.h). `chunks` is split_stages(...).size() / pipeline size. Throws
/// ConfigError.
Schedule make_schedule(const config::Parallel& parallel, int chunks, int microbatches);

/// Result of check().
struct ScheduleReport {
  std::vector<std::string> faults;  ///< empty: the schedule is valid
  /// Per rank: maximum number of (micro-batch, chunk) pairs between forward and the end of backward.
  std::vector<int> peak_in_flight;
  /// Per rank: maximum number of pairs between input gradient and weight gradient, which keep only what the
  /// weight gradient needs.
  std::vector<int> peak_pending_wgrads;
};
/// Checks that every (chunk, micro-batch) runs forward once and then backward once (full, or input and then
/// weight gradient), every send has a receive, no rank deadlocks, and inputs arrive before use and in send
/// order. Faults name rank, action and reason. Time: linear in the number of actions.
ScheduleReport check(const Schedule& schedule);

/// Durations of one chunk's actions, in any unit.
struct ActionCosts {
  double forward = 1, backward = 2, transfer = 0;
  double weight = 1;  ///< share of `backward` for the weight gradients
};
struct Timeline {
  struct Span {
    int rank;
    Action action;
    double begin, end;
  };
  std::vector<Span> spans;
  double makespan = 0;
  double bubble_fraction = 0;  ///< idle share of ranks x makespan (bubble.h)
  /// Longest time of a rank from the start of its first span to the end of its last. Papers on zero-bubble
  /// schedules report it, since ranks may start the next step at different times.
  double longest_rank_time = 0;
};
/// Timeline in which every rank starts each action as soon as it can. Transfers occupy no rank; they arrive
/// `transfer` later. Spans are ordered by rank, then by time. Throws Error on a deadlock (run check() first).
Timeline simulate(const Schedule& schedule, const ActionCosts& costs);

/// The timeline as a self-contained SVG for light and dark pages, and as text with one row per rank:
/// "F0 F1 B0 ...", where W0 is the weight gradient deferred by B0. Chunks after the first add a letter:
/// "F0b".
std::string render_svg(const Timeline& timeline, const Schedule& schedule);
std::string render_text(const Timeline& timeline, const Schedule& schedule);

}  // namespace colonnade::schedule
