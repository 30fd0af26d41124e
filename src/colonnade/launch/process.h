// One child process: started in its own process group, bound to the life of its parent, and how it ended.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace colonnade::launch {

/// How a process ended.
struct Ending {
  int code = 0;    ///< exit code; meaningless when signal is not 0
  int signal = 0;  ///< the signal that killed it, or 0
  bool core_dumped = false;
};

/// "exit code 3 (data or checkpoint damaged)", "killed by SIGSEGV (core dumped)".
std::string describe(const Ending& ending);

/// Starts `command` (found in PATH unless it holds a slash) with exactly `environment` ("NAME=value").
/// Standard input is /dev/null, output and errors go to `output_fd`. The child leads a new process
/// group and is killed by the kernel when the calling thread ends, however that happens. It has no blocked
/// signals; with `block_stop_signals` SIGINT and SIGTERM, which wait until it takes them. Throws ConfigError
/// when the program cannot be executed.
pid_t start_process(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                    int output_fd, bool block_stop_signals = false);

/// What has changed since the last look.
struct Look {
  std::optional<Ending> ending;
  bool stopped = false;    ///< by SIGSTOP, SIGTSTP, ...
  bool continued = false;  ///< by SIGCONT
};

/// Never blocks. An ended process is reaped: do not look again.
Look look_at(pid_t pid);

/// The processors that this process may use.
int usable_cores();

/// The NVIDIA GPUs that CUDA programs started from here see: those that CUDA_VISIBLE_DEVICES lists, or
/// all of the machine.
int visible_gpus();

/// A TCP port that nobody has at this moment; where it can be, none that the system gives to outgoing
/// connections. Throws Error.
int free_port();

}  // namespace colonnade::launch
