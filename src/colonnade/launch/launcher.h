// `colonnade launch`: starts the ranks of this machine, watches them, names the one that failed, ends
// the others, restarts.
#pragma once

#include "colonnade/launch/options.h"

namespace colonnade::launch {

/// Runs until all local ranks have ended. Call it from the main thread of a process that has no
/// other children: SIGCHLD, SIGINT, SIGTERM and SIGHUP are taken over while it runs.
///
/// Returns the exit code of the whole:
///   0  all ranks are done
///   1, 2  all ranks ended for a reason that they agreed on, as a last save that failed; never restarted
///   2, 3  a rank said that settings or data are wrong; never restarted
///   4  a rank died, is stopped, or gave no sign of life for hang_timeout_s, and no restart is left;
///      also when a second signal killed the ranks
///   5  ranks stopped as asked: after a save, or before the first step, when there is nothing to save
/// A lost rank is named on standard error with how it ended, step, phase, last named operation, who
/// waits for whom, and its last log lines; then the others get SIGTERM, and SIGKILL after
/// grace_period_s. SIGINT and SIGTERM are passed on to the ranks once, SIGHUP as SIGTERM; a signal
/// that comes more than a second later kills them. Throws ConfigError before anything is left running.
int run(const Options& options);

}  // namespace colonnade::launch
