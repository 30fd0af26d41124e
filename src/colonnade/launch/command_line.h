// Command lines of this process and of its launcher, for printing commands as the user typed them.
#pragma once

#include <string>
#include <vector>

namespace colonnade::launch {

using Words = std::vector<std::string>;

/// How the programs of this job are started.
struct CommandLine {
  /// Words before the verb: "colonnade launch --nproc-per-node 4 --", "torchrun ... colonnade", "colonnade".
  Words start;
  std::string program;    ///< this executable as typed
  bool launched = false;  ///< whether `start` has words before the program, e.g. a launcher
  std::string verb;       ///< first argument of this program; "" if none
};

/// Arguments of a process from /proc/PID/cmdline, argv[0] included. Empty if it cannot be read.
Words words_of_process(int pid);

/// Command line of a process with arguments `own` and a parent with arguments `parent`. A parent that ends
/// with the same arguments is its launcher; any other parent (a shell, srun's step daemon) is ignored.
CommandLine command_line(const Words& own, const Words& parent);
/// Command line of this process.
CommandLine command_line_of_process();

/// Command line of a launcher with arguments `own` that starts `command` on each rank.
CommandLine command_line_of_launcher(const Words& own, const Words& command);

}  // namespace colonnade::launch
