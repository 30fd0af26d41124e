// A schedule is data: what each pipeline rank does, in order. Printed, drawn, checked for deadlock,
// simulated and executed from the same list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace colonnade::plan {

enum class Do : std::uint8_t {
  kForward,          ///< run the chunk's blocks on a micro-batch
  kBackward,         ///< gradients of inputs and weights
  kSendActivation,   ///< to the rank of the next virtual stage
  kRecvActivation,   ///< from the rank of the previous virtual stage
  kSendGradient,     ///< to the rank of the previous virtual stage
  kRecvGradient,     ///< from the rank of the next virtual stage
};

/// One action. `chunk` counts the virtual stages of this rank from 0; the virtual stage of chunk c
/// on pipeline rank r is c * ranks + r (Megatron's order).
struct Action {
  Do act = Do::kForward;
  int chunk = 0;
  int microbatch = 0;
  friend bool operator==(const Action&, const Action&) = default;
};

/// One rank's actions in order. Sends never wait; receives wait for their value.
using Program = std::vector<Action>;

struct Schedule {
  int ranks = 1;         ///< pipeline ranks
  int chunks = 1;        ///< virtual stages per rank
  int microbatches = 1;
  std::string kind;      ///< "gpipe", "1f1b", "interleaved"
  std::vector<Program> programs;  ///< one per rank
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

/// What the checker proves about a schedule.
struct ScheduleReport {
  std::vector<std::string> faults;       ///< empty: sound
  std::vector<int> peak_live;            ///< per rank: most (micro-batch, chunk) pairs between forward and backward
};
/// Every (chunk, micro-batch) runs forward once, then backward once; every send meets its receive;
/// nothing waits forever; inputs arrive before they are used.
ScheduleReport check(const Schedule& schedule);

/// Times of one chunk's actions, in any unit.
struct ActionCosts {
  double forward = 1, backward = 2, transfer = 0;
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
};
Timeline simulate(const Schedule& schedule, const ActionCosts& costs);

/// The timeline as an SVG picture and as terminal rows ("F0 F1 B0 ...").
std::string paint_svg(const Timeline& timeline, const Schedule& schedule);
std::string paint_text(const Timeline& timeline, const Schedule& schedule);

}  // namespace colonnade::plan
