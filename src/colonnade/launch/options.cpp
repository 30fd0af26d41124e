// See options.h.
#include "colonnade/launch/options.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <ctime>

#include "colonnade/base/error.h"
#include "colonnade/config/parse.h"
#include "colonnade/launch/process.h"

namespace colonnade::launch {
namespace {

constexpr int kMaxRanksPerCore = 64;

config::Parsed parse_command(const std::vector<std::string>& command) {
  const auto flags = std::find_if(command.begin(), command.end(),
                                  [](const std::string& word) { return word.starts_with("--"); });
  return config::parse_all({flags, command.end()});
}

/// Settings in the ranks' command. Errors are ignored: the ranks report them, and the command may be another
/// program.
config::Run settings_of(const std::vector<std::string>& command) { return parse_command(command).run; }

/// Canonical path of a folder, whether it exists or not.
std::filesystem::path canonical(const std::filesystem::path& folder) {
  std::error_code error;
  const auto path = std::filesystem::weakly_canonical(std::filesystem::absolute(folder), error);
  return path.has_filename() ? path : path.parent_path();
}

/// Error if a restarted `pretrain` would not resume the run; "" if it would, and for other programs.
std::string restart_error(const Options& o) {
  if (o.max_restarts <= 0 || o.command.size() < 2 || o.command[1] != "pretrain") return "";
  const config::Parsed parsed = parse_command(o.command);
  if (!parsed.faults.empty()) return "";  // the ranks report them
  const config::Checkpoint& c = parsed.run.checkpoint;
  const std::string save = !c.save.empty() ? c.save : !c.load.empty() ? c.load : "DIR";
  const bool same =
      !c.save.empty() && !c.load.empty() &&
      (canonical(c.load) == canonical(c.save) || canonical(c.load) == canonical(c.save) / "checkpoints");
  if (same && !c.finetune) return "";
  const auto shown = [](const char* flag, const std::string& value) {
    return value.empty() ? fmt::format("no {}", flag) : fmt::format("{} {}", flag, value);
  };
  std::string fix = c.save.empty() ? fmt::format("write --save {} --load {}", save, save)
                                   : fmt::format("write --load {}", save);
  if (c.finetune) fix += " without --finetune";
  if (c.finetune || !c.load.empty()) fix += "; initial weights belong in --pretrained-checkpoint";
  return fmt::format(
      "--max-restarts requires --load to equal --save: a restart resumes from the run's own checkpoints; "
      "got {} and {}{}; {}",
      shown("--save", c.save), shown("--load", c.load), c.finetune ? " with --finetune" : "", fix);
}

}  // namespace

void check(const Options& o) {
  std::string errors;
  const auto require = [&](bool right, const std::string& text) {
    if (!right) errors += (errors.empty() ? "" : "\n") + text;
  };
  require(o.nproc_per_node >= 1,
          fmt::format("--nproc-per-node must be at least 1; got {}; set the number of ranks per node",
                      o.nproc_per_node));
  const int cores = usable_cores();
  require(o.nproc_per_node <= kMaxRanksPerCore * cores,
          fmt::format("--nproc-per-node must be at most {} per core; got {} and {} cores; start fewer ranks",
                      kMaxRanksPerCore, o.nproc_per_node, cores));
  require(o.nnodes >= 1,
          fmt::format("--nnodes must be at least 1; got {}; write 1 for a single node", o.nnodes));
  require(o.node_rank >= 0 && o.node_rank < std::max(o.nnodes, 1),
          fmt::format("--node-rank must be 0 to nnodes-1; got {} of {} nodes; give each node its own rank",
                      o.node_rank, o.nnodes));
  require(
      o.nnodes <= 1 || (!o.master_addr.empty() && o.master_port != 0),
      fmt::format("--nnodes above 1 requires --master-addr and --master-port; got {}, --master-addr '{}', "
                  "--master-port {}; give both, equal on all nodes",
                  o.nnodes, o.master_addr, o.master_port));
  require(
      o.master_port >= 0 && o.master_port + std::max(o.max_restarts, 0) <= 65535,
      fmt::format(
          "--master-port must be 1 to 65535, restarts included; got {} and {} restarts; choose a lower port",
          o.master_port, o.max_restarts));
  require(o.max_restarts >= 0,
          fmt::format("--max-restarts must be 0 or more; got {}; write 0 for none", o.max_restarts));
  const std::string error = restart_error(o);
  require(error.empty(), error);
  require(o.monitor_interval_s > 0 && o.monitor_interval_s <= 5,
          fmt::format("--monitor-interval must be above 0 and at most 5 seconds; got {}; write e.g. 0.1",
                      o.monitor_interval_s));
  require(o.hang_timeout_s >= 0,
          fmt::format("--hang-timeout must be 0 or more seconds; got {}; write 0 for the default",
                      o.hang_timeout_s));
  require(o.grace_period_s >= 0,
          fmt::format("--grace-period must be 0 or more seconds; got {}; write e.g. 10", o.grace_period_s));
  require(!o.command.empty(),
          "launch needs a command to start; got nothing after `--`; "
          "e.g. `colonnade launch --nproc-per-node 2 -- pretrain gpt --config run.yaml`");
  if (!errors.empty()) throw ConfigError(errors);
}

std::filesystem::path log_dir_of_run(const std::vector<std::string>& command) {
  const std::string save = settings_of(command).checkpoint.save;
  return save.empty() ? std::filesystem::path() : std::filesystem::path(save) / "logs";
}

std::filesystem::path log_dir_of_now() {
  return std::filesystem::path("logs") /
         fmt::format("{:%Y-%m-%dT%H-%M-%SZ}", fmt::gmtime(std::time(nullptr)));
}

double default_hang_timeout_s(const std::vector<std::string>& command) {
  const double minutes = settings_of(command).training.distributed_timeout_minutes;
  return (minutes > 0 ? minutes : config::Training{}.distributed_timeout_minutes) * 60 + 30;
}

}  // namespace colonnade::launch
