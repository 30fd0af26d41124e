// The command lines of this process and of the launcher that started it, to print commands as the user typed
// them.
#pragma once

#include <string>
#include <vector>

namespace colonnade::launch {

using Words = std::vector<std::string>;

/// How programs of this job are started.
struct CommandLine {
  /// What stands before the verb: "colonnade launch --nproc-per-node 4 --", "torchrun ... colonnade",
  /// "colonnade".
  Words start;
  std::string program;    ///< this executable as it was typed
  bool launched = false;  ///< `start` begins with a launcher, or whatever else stood before the program
  std::string verb;       ///< the first argument of this program; "" without one
};

/// The words of a process: /proc/PID/cmdline. Empty when it cannot be read.
Words words_of_process(int pid);

/// Of a process with `own` words whose parent has `parent` words. A parent that ends with the same arguments
/// has started it; any other one (a shell, srun's step daemon) says nothing.
CommandLine command_line(const Words& own, const Words& parent);
/// The same of this process.
CommandLine command_line_of_process();

/// Of a launcher with `own` words that starts `command` for each rank.
CommandLine command_line_of_launcher(const Words& own, const Words& command);

}  // namespace colonnade::launch
