// Failure diagnosis: pure functions from the observed state of the ranks to culprit, reason and exit code.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "colonnade/base/progress.h"
#include "colonnade/launch/process.h"

namespace colonnade::launch {

/// Observed state of one rank of this machine.
struct RankView {
  int rank = 0;
  std::optional<ExitStatus> exit;  ///< empty while it runs
  double stopped_s = 0;            ///< time since it was stopped (SIGSTOP); 0 while it runs
  double silent_s = 0;             ///< time since its last heartbeat; 0 before it opened its page
  ProgressSnapshot page;
};

/// Time-outs in seconds after which a running rank counts as lost.
struct Timeouts {
  double stopped_s = 2;
  double silent_s = 630;
  double lost_peer_s = 2;  ///< from the first exit code 4 to the diagnosis; the cause may exit later
};

/// A rank that is not lost but keeps others waiting.
struct Straggler {
  int rank = 0;
  std::string line;  ///< report: waiting ranks, wait time, operation, and the straggler's position
};

struct Diagnosis {
  int exit_code = 4;               ///< the ranks' own code if 2, 3 or agreed; else 4
  std::vector<int> culprits;       ///< world ranks, ascending; the log of the first is shown
  std::vector<std::string> lines;  ///< report, without log lines
};

/// Empty while the ranks are healthy, or while the cause may still show up. `waited_s` is the time since the
/// first rank exited with code 4. The first rule that holds decides; a rank
///   exited with the agreed code (Progress::set_agreed_exit_code);
///   exited with 2 or 3;
///   exited with another code than 0, 4, 5, or was killed by a signal;
///   is stopped;
///   exited with 4, or has no heartbeat: the culprit is the rank that the others wait for.
std::optional<Diagnosis> diagnose(std::span<const RankView> ranks, const Timeouts& timeouts, double waited_s);

/// Whether the rank was asked to stop before its first step, i.e. exited there with code 5.
bool stopped_before_first_step(const RankView& view);

/// The ranks, with exit statuses caused by a stop before the first step mapped to code 5: death by SIGTERM or
/// SIGINT before the program handled them, and code 4 because other ranks were gone already. Unchanged unless
/// the ranks were `asked` to stop or one of them stopped before its first step.
std::vector<RankView> with_early_stops(std::vector<RankView> ranks, bool asked);

/// World ranks that keep `view` waiting, as far as this machine can see: the peer of a message, or the
/// members of the collective that have not arrived or have exited.
std::vector<int> missing_ranks(const RankView& view, std::span<const RankView> ranks);

/// The straggler that others have waited for at least `after_s` seconds: of the longest wait, the first
/// missing rank that does not wait itself or, if they wait in a cycle, the first of the cycle. Empty if no
/// rank waits that long or the missing ranks are on other machines. `now_ns` is the clock of the pages
/// (monotonic_ns).
std::optional<Straggler> find_straggler(std::span<const RankView> ranks, double after_s, std::int64_t now_ns);

/// Position of a rank: "step 12, phase data, last operation 'grad bucket 3' (dp of ranks 0, 1; number 41)".
std::string position_text(const RankView& view);

}  // namespace colonnade::launch
