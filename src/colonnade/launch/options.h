// What `colonnade launch` is asked to do.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace colonnade::launch {

struct Options {
  int nproc_per_node = 1;  ///< --nproc-per-node: ranks started here
  int nnodes = 1;          ///< --nnodes: launchers that work together
  int node_rank =
      0;  ///< --node-rank: 0 .. nnodes-1; this launcher's ranks are node_rank * nproc_per_node + i
  std::string master_addr;          ///< --master-addr: host of rank 0; "": this machine
  int master_port = 0;              ///< --master-port; 0: a free one. Restart r uses master_port + r
  int max_restarts = 0;             ///< --max-restarts: starts after the first, when a rank was lost
  std::filesystem::path log_dir;    ///< --log-dir; "": log_dir_of_run, else a new log_dir_of_now
  bool new_log_dir = false;         ///< log_dir must be new: NAME-2, ... where it is taken
  double monitor_interval_s = 0.1;  ///< --monitor-interval: seconds between two looks at the ranks
  double hang_timeout_s =
      0;  ///< --hang-timeout: silence of a rank that means it hangs; 0: default_hang_timeout_s(command)
  double grace_period_s = 10;        ///< --grace-period: from SIGTERM to SIGKILL when ranks are ended
  std::vector<std::string> command;  ///< program and arguments of every rank
  bool own_program = false;          ///< it is this executable, which takes stop signals over when blocked
};

/// Throws ConfigError with all that is wrong.
void check(const Options& options);

/// "<DIR>/logs" when the command says `--save DIR`, itself or in a YAML file; else "".
std::filesystem::path log_dir_of_run(const std::vector<std::string>& command);
/// "logs/<UTC time>".
std::filesystem::path log_dir_of_now();

/// The ranks' own time-out (`--distributed-timeout-minutes`, itself or in a YAML file, 10 by default) and
/// half a minute: the ranks come first, for they know more.
double default_hang_timeout_s(const std::vector<std::string>& command);

}  // namespace colonnade::launch
