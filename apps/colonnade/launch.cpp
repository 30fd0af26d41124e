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

/// A verb is run by this executable; a path, or anything after --no-verb, is a program.
void set_command(const Arguments& words, bool no_verb, launch::Options& options) {
  options.command = words;
  options.own_program = !words.empty() && !no_verb && words.front().find('/') == std::string::npos;
  if (options.own_program)
    options.command.insert(options.command.begin(), fs::read_symlink("/proc/self/exe").string());
}

/// "4", or "auto" (Kubeflow's default, also "gpu"): a rank for each GPU, one where there is none.
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

/// What the flags say.
struct Asked {
  launch::Options options;
  std::string ranks = "1";
  bool no_verb = false;
};

void add_flags(CLI::App& app, Asked& asked) {
  launch::Options& options = asked.options;
  app.description(
      "Starts the ranks of this machine, watches them, names the one that fails, ends the others.\n"
      "  colonnade launch --nproc-per-node 4 -- pretrain gpt --config run.yaml\n"
      "  colonnade launch --nproc-per-node 4 -- ./program --its-flags\n"
      "Exit codes: 0 done, 2 settings wrong, 3 data damaged, 4 a rank was lost, 5 stopped as asked.");
  const auto add = [&](const char* flag, auto& value, const char* help) {
    return app.add_option(flag, value, help)->capture_default_str();
  };
  add("--nproc-per-node", asked.ranks, "Ranks on this machine; auto: one per GPU")
      ->envname("PET_NPROC_PER_NODE");
  add("--nnodes", options.nnodes, "Machines that work together")->envname("PET_NNODES");
  add("--node-rank", options.node_rank, "This machine's number, 0 to nnodes-1")->envname("PET_NODE_RANK");
  add("--master-addr", options.master_addr, "Host of rank 0; empty: this machine")
      ->envname("PET_MASTER_ADDR");
  add("--master-port", options.master_port, "Port of rank 0; 0: a free one; restart r takes port + r")
      ->envname("PET_MASTER_PORT");
  add("--max-restarts", options.max_restarts, "Starts after the first, when a rank was lost");
  add("--log-dir", options.log_dir,
      "Folder of rank_N.log; empty: logs/ in the folder that --save or the YAML file names, else logs/TIME");
  add("--monitor-interval", options.monitor_interval_s, "Seconds between two looks at the ranks");
  add("--hang-timeout", options.hang_timeout_s,
      "Seconds without a sign of life after which a rank hangs; 0: --distributed-timeout-minutes and 30 s");
  add("--grace-period", options.grace_period_s, "Seconds from SIGTERM to SIGKILL when ranks are ended");
  app.add_flag("--no-verb", asked.no_verb, "The first word after `--` is a program, found in PATH");
}

}  // namespace

Offers launch_offers() {
  CLI::App app("", "launch");
  Asked asked;
  add_flags(app, asked);
  return offers_of(app, "launch");
}

int launch(const Arguments& arguments) {
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  CLI::App app("", "launch");
  Asked asked;
  add_flags(app, asked);
  if (!read_flags(app, Arguments(arguments.begin(), dashes))) return kExitDone;
  asked.options.nproc_per_node = number_of_ranks(asked.ranks);
  if (dashes != arguments.end())
    set_command(Arguments(dashes + 1, arguments.end()), asked.no_verb, asked.options);
  return launch::run(asked.options);
}

}  // namespace colonnade::app
