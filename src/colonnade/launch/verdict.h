// Who is to blame: pure functions from what is seen of the ranks to a rank, a reason and an exit code.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "colonnade/base/progress.h"
#include "colonnade/launch/process.h"

namespace colonnade::launch {

/// One rank of this machine as it is seen now.
struct RankView {
  int rank = 0;
  std::optional<Ending> ending;
  double stopped_s = 0;  ///< how long it has been stopped (SIGSTOP); 0: it is not
  double silent_s = 0;   ///< since its last sign of life; 0 while it has no page
  ProgressSnapshot page;
};

/// When a living rank counts as lost, in seconds.
struct Patience {
  double stopped_s = 2;
  double silent_s = 630;
  double peer_s =
      2;  ///< from the first rank that lost another one to the verdict, for the cause may end later
};

/// A rank that others wait for, though it is not lost.
struct Late {
  int rank = 0;
  std::string line;  ///< who waits for it, how long, in what, and where it is
};

struct Verdict {
  int exit_code = 4;               ///< 2, 3 and what ranks agreed on are the ranks' own; else 4
  std::vector<int> culprits;       ///< world ranks, ascending; the first is shown with its log
  std::vector<std::string> lines;  ///< the report, without logs
};

/// Nothing while the ranks are well, or while the cause may still show itself. `waited_s` is the
/// time since the first rank ended with exit code 4. Rules, the first that holds:
///   a rank ended as all had agreed (Progress::set_agreed_end); ended with 2 or 3; ended in another way but
///   0, 4, 5; ended with 4 (then the one that the others wait for); is stopped; is silent (then the one that
///   the others wait for).
std::optional<Verdict> judge(std::span<const RankView> ranks, const Patience& patience, double waited_s);

/// True for a rank that was asked to stop before its first step: it ended with 5 there.
bool stopped_early(const RankView& view);

/// The ranks, with the endings that such a stop brings about before the first step turned into exit
/// code 5: by SIGTERM or SIGINT before the program could take them, and by 4 because others were gone
/// already. Nothing changes unless the ranks were `asked`, or one stopped early by itself.
std::vector<RankView> with_early_stops(std::vector<RankView> ranks, bool asked);

/// World ranks that keep `view` waiting, as far as this machine can see: the peer of a message, or
/// the members of the collective that have not arrived there or have ended.
std::vector<int> holding_up(const RankView& view, std::span<const RankView> ranks);

/// The rank that is not where others have waited for it for `after_s` seconds or longer: of the longest wait
/// the first that is missing there and waits nowhere itself, or, when those wait in a circle, the first of
/// them. Nothing when nobody waits that long, or when the missing are on other machines. `now_ns` is the
/// clock of the pages (monotonic_ns).
std::optional<Late> find_late(std::span<const RankView> ranks, double after_s, std::int64_t now_ns);

/// "step 12, phase data, last operation 'grad bucket 3' (dp of ranks 0, 1; number 41)".
std::string where(const RankView& view);

}  // namespace colonnade::launch
