// `colonnade launch`: starts the ranks of this machine, monitors them, names the one that failed, stops the
// others, restarts.
#pragma once

#include "colonnade/launch/options.h"

namespace colonnade::launch {

/// Runs until all local ranks have exited. Call it from the main thread of a process without other children:
/// it handles SIGCHLD, SIGINT, SIGTERM and SIGHUP while it runs.
///
/// Returns the exit code of the job:
///   0  all ranks finished
///   1, 2  all ranks exited for an agreed reason, e.g. a failed last save; never restarted
///   2, 3  a rank rejected its settings or data; never restarted
///   4  a rank died, is stopped, or had no heartbeat for hang_timeout_s, and no restart is left; also when a
///      second signal killed the ranks
///   5  ranks stopped on request: after a save, or before the first step, when there is nothing to save
/// A lost rank is reported on standard error with its exit status, step, phase, last named operation, the
/// ranks that wait for it, and its last log lines; then the others get SIGTERM, and SIGKILL after
/// grace_period_s. SIGINT and SIGTERM are forwarded to the ranks once, SIGHUP as SIGTERM; a signal more than
/// a second later kills them. Throws ConfigError before any process is left running.
int run(const Options& options);

}  // namespace colonnade::launch
