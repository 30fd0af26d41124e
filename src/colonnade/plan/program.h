// A schedule is data: what each pipeline rank does, in order. Printed, drawn, checked for deadlock,
// simulated and executed from the same list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace colonnade::config {
struct Parallel;
}

namespace colonnade::plan {

enum class Do : std::uint8_t {
  kForward,         ///< run the chunk's blocks on a micro-batch
  kBackward,        ///< gradients of inputs and weights
  kSendActivation,  ///< to the rank of the next virtual stage
  kRecvActivation,  ///< from the rank of the previous virtual stage
  kSendGradient,    ///< to the rank of the previous virtual stage
  kRecvGradient,    ///< from the rank of the next virtual stage
};

/// One action. `chunk` counts the virtual stages of this rank from 0; the virtual stage of chunk c
/// on pipeline rank r is c * ranks + r (Megatron's order). Of a transfer, `chunk` is the own chunk
/// of the rank that performs the action: the one that made the value, or the one that will use it.
///
/// With ranks == 1 no transfer exists: a value goes from one chunk of the rank to the next in
/// memory, and the program holds kForward and kBackward only.
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
  std::string kind;               ///< "gpipe", "1f1b", "interleaved"
  std::vector<Program> programs;  ///< one per rank

  [[nodiscard]] int stages() const { return ranks * chunks; }  ///< virtual stages
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

/// The order of forwards of interleaved(), equal on all ranks: for each group of micro-batches, for
/// each chunk, for each micro-batch. Backwards follow the same list with chunk -> chunks - 1 - chunk.
struct ChunkStep {
  int chunk;
  int microbatch;
};
std::vector<ChunkStep> interleaved_order(int chunks, int microbatches, int group);

/// The schedule that the settings ask for; "auto" is 1F1B for one chunk and interleaved for more.
/// `chunks` is split_stages(...).size() / pipeline size. Throws ConfigError.
Schedule make_schedule(const config::Parallel& parallel, int chunks, int microbatches);

/// What the checker proves about a schedule.
struct ScheduleReport {
  std::vector<std::string> faults;  ///< empty: sound
  std::vector<int> peak_live;  ///< per rank: most (micro-batch, chunk) pairs between forward and backward
};
/// Every (chunk, micro-batch) runs forward once, then backward once; every send meets its receive;
/// nothing waits forever; inputs arrive before they are used and in the order they were sent.
/// Faults name rank, action and reason. Time: linear in the number of actions.
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
/// When each forward and backward runs if every rank works as soon as it can. Transfers occupy no
/// rank, they only arrive `transfer` later. Spans are ordered by rank, then by time. Throws Error
/// when the schedule does not end (check it first).
Timeline simulate(const Schedule& schedule, const ActionCosts& costs);

/// The timeline as a self-contained SVG picture, readable on light and dark pages, and as terminal
/// rows ("F0 F1 B0 ..."; chunks after the first add a letter: "F0b"). One row per rank.
std::string paint_svg(const Timeline& timeline, const Schedule& schedule);
std::string paint_text(const Timeline& timeline, const Schedule& schedule);

}  // namespace colonnade::plan
