// Faults on demand: a run that is told by COLONNADE_FAULT to die at a named place, so that tests (and
// anybody who doubts) can see that it resumes to the same bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace colonnade::fault {

/// The places of a run, in the order in which a step and its save reach them. The first four are
/// reached once, before the first step; those of a save that only rank 0 reaches are marked.
inline constexpr std::string_view kPoints[] = {
    "connected",         // all ranks have met
    "model-built",       // parameters, gradient buffers, optimizer and pipeline exist
    "data-opened",       // the data sets are open
    "restored",          // the state to start from is in place
    "step-begin",        // of a training step
    "data",              // about to ask for a micro-batch
    "forward",           // about to run a micro-batch forward
    "backward",          // about to run the last backward pass of the step
    "forward-backward",  // all gradients of this rank are there
    "gradient-sync",     // gradients are summed over the ranks
    "losses",            // losses are summed over the ranks
    "optimizer",         // parameters are updated
    "exchanged",         // the ranks have told each other times, memory and stop requests
    "evaluate-begin",    // of an evaluation
    "evaluate-end",      // its losses are known
    "save-begin",        // checkpoint::kSavePoints from here
    "save-staged",
    "save-writing",
    "save-written",
    "save-manifest",  // rank 0
    "save-rename",    // rank 0
    "save-renamed",   // rank 0
    "save-latest",    // rank 0
    "saved",          // the save is over
};

/// What COLONNADE_FAULT asks for: words NAME=VALUE separated by spaces, as in
/// "rank=2 step=4 at=optimizer signal=KILL".
struct Plan {
  std::string at;                    ///< at=POINT, one of kPoints; the only word that must be there
  std::optional<int> rank;           ///< rank=N; else every rank
  std::optional<std::int64_t> step;  ///< step=N, counted from 1; else the first time
  std::optional<int> restart;        ///< restart=N: in the Nth restart only, 0 is the first start
  int signal = 0;                    ///< signal=NAME (KILL, TERM, ...); KILL where no other act is named
  double sleep_s = 0;                ///< sleep=SECONDS: the rank waits there, once
  bool throws = false;               ///< throw=1: an Error is thrown
};

/// Throws ConfigError with every word that is wrong.
Plan parse(const std::string& text);

/// Whether the plan acts at `name` on this rank, in this step and restart.
bool applies(const Plan& plan, std::string_view name, int rank, std::int64_t step, int restart);

/// The run is at place `name`, one of kPoints. Without COLONNADE_FAULT it costs a branch. With it,
/// when the plan applies (rank and step are those of the page of progress, the restart that of
/// COLONNADE_RESTART_COUNT): raises the signal, sleeps or throws, once per process.
/// Throws ConfigError when COLONNADE_FAULT cannot be read.
void point(std::string_view name);

}  // namespace colonnade::fault
