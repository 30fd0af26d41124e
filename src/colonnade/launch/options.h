// Options of `colonnade launch`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace colonnade::launch {

struct Options {
  int nproc_per_node = 1;  ///< --nproc-per-node: ranks per node
  int nnodes = 1;          ///< --nnodes: nodes, one launcher each
  /// --node-rank: 0 .. nnodes-1; this launcher's ranks are node_rank * nproc_per_node + i
  int node_rank = 0;
  std::string master_addr;          ///< --master-addr: host of rank 0; "": this machine
  int master_port = 0;              ///< --master-port; 0: any free port. Restart r uses master_port + r
  int max_restarts = 0;             ///< --max-restarts: restarts after a lost rank
  std::filesystem::path log_dir;    ///< --log-dir; "": log_dir_of_run, else a new log_dir_of_now
  bool new_log_dir = false;         ///< log_dir must be new: NAME-2, ... if it exists
  double monitor_interval_s = 0.1;  ///< --monitor-interval: seconds between checks of the ranks
  /// --hang-timeout: seconds without a heartbeat before a rank counts as hung; 0:
  /// default_hang_timeout_s(command)
  double hang_timeout_s = 0;
  double grace_period_s = 10;         ///< --grace-period: seconds from SIGTERM to SIGKILL
  std::vector<std::string> command;   ///< program and arguments of every rank
  bool runs_this_executable = false;  ///< the program is this executable, which unblocks stop signals itself
};

/// Throws ConfigError that lists all violated rules.
void check(const Options& options);

/// "<DIR>/logs" if the command sets `--save DIR` on its command line or in a YAML file; else "".
std::filesystem::path log_dir_of_run(const std::vector<std::string>& command);
/// "logs/<UTC time>".
std::filesystem::path log_dir_of_now();

/// The ranks' own time-out (`--distributed-timeout-minutes` from the command line or a YAML file, 10 by
/// default) plus 30 s, so that the ranks, which know more, report first.
double default_hang_timeout_s(const std::vector<std::string>& command);

}  // namespace colonnade::launch
