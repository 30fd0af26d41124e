// `colonnade launch`: reads its flags; launch/launcher.h does the rest.
#include "colonnade/launch/launcher.h"

#include <algorithm>
#include <filesystem>

#include "colonnade/base/error.h"
#include "flags.h"

namespace colonnade::app {
namespace {

namespace fs = std::filesystem;

/// A verb is run by this executable; a path, or anything after --no-verb, is a program.
std::vector<std::string> command_of(const Arguments& words, bool no_verb) {
  std::vector<std::string> command = words;
  if (!command.empty() && !no_verb && command.front().find('/') == std::string::npos)
    command.insert(command.begin(), fs::read_symlink("/proc/self/exe").string());
  return command;
}

}  // namespace

int launch(const Arguments& arguments) {
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  launch::Options options;
  bool no_verb = false;
  CLI::App app(
      "Starts the ranks of this machine, watches them, names the one that fails, ends the others.\n"
      "  colonnade launch --nproc-per-node 4 -- pretrain gpt --config run.yaml\n"
      "  colonnade launch --nproc-per-node 4 -- ./program --its-flags\n"
      "Exit codes: 0 done, 2 settings wrong, 3 data damaged, 4 a rank was lost, 5 stopped after a save.",
      "launch");
  app.add_option("--nproc-per-node", options.nproc_per_node, "Ranks on this machine")->capture_default_str();
  app.add_option("--nnodes", options.nnodes, "Machines that work together")->capture_default_str();
  app.add_option("--node-rank", options.node_rank, "This machine's number, 0 to nnodes-1")
      ->capture_default_str();
  app.add_option("--master-addr", options.master_addr, "Host of rank 0 [this machine]");
  app.add_option("--master-port", options.master_port,
                 "Port of rank 0 [a free one]; restart r takes port + r");
  app.add_option("--max-restarts", options.max_restarts, "Starts after the first, when a rank was lost")
      ->capture_default_str();
  app.add_option("--log-dir", options.log_dir,
                 "Folder of rank_N.log [DIR/logs of --save DIR, else logs/TIME]");
  app.add_option("--monitor-interval", options.monitor_interval_s, "Seconds between two looks at the ranks")
      ->capture_default_str();
  app.add_option(
      "--hang-timeout", options.hang_timeout_s,
      "Seconds without a sign of life after which a rank hangs [--distributed-timeout-minutes and 30 s]");
  app.add_option("--grace-period", options.grace_period_s,
                 "Seconds from SIGTERM to SIGKILL when ranks are ended")
      ->capture_default_str();
  app.add_flag("--no-verb", no_verb, "The first word after `--` is a program, found in PATH");
  if (!read_flags(app, Arguments(arguments.begin(), dashes))) return kExitDone;
  if (dashes != arguments.end())
    options.command = command_of(Arguments(dashes + 1, arguments.end()), no_verb);
  return launch::run(options);
}

}  // namespace colonnade::app
