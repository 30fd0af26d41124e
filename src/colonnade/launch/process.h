// One child process: started in its own process group, killed with its parent, and its exit status.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace colonnade::launch {

/// Exit status of a process.
struct ExitStatus {
  int code = 0;    ///< exit code; meaningless if signal is not 0
  int signal = 0;  ///< the signal that killed it, or 0
  bool core_dumped = false;
};

/// "exit code 3 (data or checkpoint damaged)", "killed by SIGSEGV (core dumped)".
std::string describe(const ExitStatus& status);

/// Starts `command` (searched in PATH unless it contains a slash) with exactly `environment` ("NAME=value").
/// Standard input is /dev/null; output and errors go to `output_fd`. The child leads a new process group, and
/// the kernel kills it when the calling thread ends for any reason. Its signal mask is empty, or with
/// `block_stop_signals` blocks SIGINT, SIGTERM and SIGHUP until the child unblocks them. Throws ConfigError
/// if the program cannot be executed.
pid_t start_process(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                    int output_fd, bool block_stop_signals = false);

/// State changes of a child since the last poll.
struct StateChange {
  std::optional<ExitStatus> exit;
  bool stopped = false;    ///< by SIGSTOP, SIGTSTP, ...
  bool continued = false;  ///< by SIGCONT
};

/// Never blocks. Reaps a process that has exited; do not poll it again.
StateChange poll_child(pid_t pid);

/// Number of CPU cores in this process's affinity mask.
int usable_cores();

/// Number of NVIDIA GPUs visible to child processes: those in CUDA_VISIBLE_DEVICES, else all of the machine.
int visible_gpus();

/// A currently unused TCP port, if possible outside the ephemeral range. Throws Error.
int free_port();

}  // namespace colonnade::launch
