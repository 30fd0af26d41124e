// `colonnade launch`: reads its flags; launch/launcher.h does the rest.
#include "colonnade/launch/launcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "colonnade/base/error.h"
#include "colonnade/launch/process.h"
#include "flags.h"

namespace colonnade::app {
namespace {

namespace fs = std::filesystem;

/// Sets the command: a verb runs this executable; a path, or anything with --no-verb, is a program.
void set_command(const Arguments& words, bool no_verb, launch::Options& options) {
  options.command = words;
  options.runs_this_executable = !words.empty() && !no_verb && words.front().find('/') == std::string::npos;
  if (options.runs_this_executable)
    options.command.insert(options.command.begin(), fs::read_symlink("/proc/self/exe").string());
}

/// Parses "4", or "auto" (Kubeflow's default, also "gpu"): one rank per GPU, or one rank without GPUs.
int number_of_ranks(const std::string& text) {
  if (text == "auto" || text == "gpu") return std::max(launch::visible_gpus(), 1);
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size())
    throw ConfigError(
        fmt::format("--nproc-per-node or PET_NPROC_PER_NODE must be a number or auto; got '{}'; write e.g. "
                    "--nproc-per-node 4",
                    text));
  return count;
}

/// Values of the flags.
struct LaunchFlags {
  launch::Options options;
  std::string ranks = "1";
  bool no_verb = false;
};

void add_flags(CLI::App& app, LaunchFlags& flags) {
  launch::Options& options = flags.options;
  describe(app,
           "Starts and monitors the ranks of this machine. If one fails, it names that rank and stops the "
           "others.\n"
           "Exit codes: 0 done, 2 invalid settings, 3 damaged data, 4 lost rank, 5 stopped on request.",
           {"colonnade launch --nproc-per-node 4 -- pretrain gpt --config run.yaml",
            "colonnade launch --nproc-per-node 4 -- ./program --its-flags"});
  const auto add = [&](const char* flag, auto& value, const char* help) {
    return app.add_option(flag, value, help)->capture_default_str();
  };
  add("--nproc-per-node", flags.ranks, "Ranks on this machine; auto: one per GPU")
      ->envname("PET_NPROC_PER_NODE");
  add("--nnodes", options.nnodes, "Number of machines")->envname("PET_NNODES");
  add("--node-rank", options.node_rank, "Rank of this machine, 0 to nnodes-1")->envname("PET_NODE_RANK");
  add("--master-addr", options.master_addr, "Host of rank 0; empty: this machine")
      ->envname("PET_MASTER_ADDR");
  add("--master-port", options.master_port, "Port of rank 0; 0: a free port; restart r uses port + r")
      ->envname("PET_MASTER_PORT");
  add("--max-restarts", options.max_restarts, "Restarts after a lost rank");
  add("--log-dir", options.log_dir,
      "Folder of rank_N.log; empty: logs/ in the folder of --save or the YAML file, else logs/TIME");
  add("--monitor-interval", options.monitor_interval_s, "Seconds between checks of the ranks");
  add("--hang-timeout", options.hang_timeout_s,
      "Seconds without progress after which a rank counts as hung; 0: --distributed-timeout-minutes plus 30 s");
  add("--grace-period", options.grace_period_s, "Seconds from SIGTERM to SIGKILL when ranks are stopped");
  app.add_flag("--no-verb", flags.no_verb, "The first word after `--` is a program in PATH");
}

}  // namespace

Offers launch_offers() {
  CLI::App app("", "launch");
  LaunchFlags flags;
  add_flags(app, flags);
  return offers_of(app, "launch");
}

int launch(const Arguments& arguments) {
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  CLI::App app("", "launch");
  LaunchFlags flags;
  add_flags(app, flags);
  if (!read_flags(app, Arguments(arguments.begin(), dashes))) return kExitDone;
  flags.options.nproc_per_node = number_of_ranks(flags.ranks);
  if (dashes != arguments.end())
    set_command(Arguments(dashes + 1, arguments.end()), flags.no_verb, flags.options);
  return launch::run(flags.options);
}

}  // namespace colonnade::app
