// Fault injection: COLONNADE_FAULT makes a run fail at a named point, to test that it resumes bitwise
// identically.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace colonnade::fault {

/// Injection points in the order in which a step and its save reach them. The first four are reached once,
/// before the first step. Points of a save that only rank 0 reaches are marked.
inline constexpr std::string_view kPoints[] = {
    "connected",         // after the rendezvous of all ranks
    "model-built",       // parameters, gradient buffers, optimizer and pipeline are built
    "data-opened",       // datasets are open
    "restored",          // initial state is loaded
    "step-begin",        // start of a training step
    "data",              // before a micro-batch is fetched
    "forward",           // before the forward pass of a micro-batch
    "backward",          // before the last backward pass of the step
    "forward-backward",  // all gradients of this rank are computed
    "gradient-sync",     // gradients are reduced over the ranks
    "losses",            // losses are reduced over the ranks
    "optimizer",         // parameters are updated
    "exchanged",         // ranks have exchanged times, memory and stop requests
    "evaluate-begin",    // start of an evaluation
    "evaluate-end",      // losses of the evaluation are computed
    "save-begin",        // checkpoint::kSavePoints begin here
    "save-staged",
    "save-writing",
    "save-written",
    "save-manifest",  // rank 0
    "save-rename",    // rank 0
    "save-renamed",   // rank 0
    "save-latest",    // rank 0
    "saved",          // the save is complete
};

/// Parsed COLONNADE_FAULT: words NAME=VALUE separated by spaces, e.g. "rank=2 step=4 at=optimizer
/// signal=KILL".
struct Plan {
  std::string at;                    ///< at=POINT, one of kPoints; the only required word
  std::optional<int> rank;           ///< rank=N; unset: every rank
  std::optional<std::int64_t> step;  ///< step=N, from 1; unset: the first time
  std::optional<int> restart;        ///< restart=N: only in restart N; 0 is the first start
  int signal = 0;                    ///< signal=NAME (KILL, TERM, ...); KILL if no other action is given
  double sleep_s = 0;                ///< sleep=SECONDS: the rank sleeps there, once
  bool throws = false;               ///< throw=1: throws Error
};

/// Throws ConfigError that lists every invalid word.
Plan parse(const std::string& text);

/// Whether the plan triggers at `name` on this rank, in this step and restart.
bool applies(const Plan& plan, std::string_view name, int rank, std::int64_t step, int restart);

/// Marks injection point `name`, one of kPoints. Costs one branch without COLONNADE_FAULT. With it, if the
/// plan applies, raises the signal, sleeps or throws, once per process; rank and step are those of the
/// progress page, the restart is COLONNADE_RESTART_COUNT. Throws ConfigError if COLONNADE_FAULT is invalid.
void point(std::string_view name);

}  // namespace colonnade::fault
