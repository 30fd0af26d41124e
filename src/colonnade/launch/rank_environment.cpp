// See rank_environment.h. Reads the environment variables and collects all errors in them.
#include "colonnade/launch/rank_environment.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "colonnade/base/error.h"

namespace colonnade::launch {
namespace {

/// Reads values from an environment and records sources and errors.
class Reader {
 public:
  Reader(const Environment& env, RankEnvironment& place) : env_(env), place_(place) {}

  [[nodiscard]] bool has(const std::string& name) const {
    const auto it = env_.find(name);
    return it != env_.end() && !it->second.empty();
  }
  [[nodiscard]] const std::string& text(const std::string& name) const { return env_.at(name); }

  /// The number in `name`, if it is set and lies in [low, high].
  std::optional<int> number(const std::string& name, int low, int high) {
    if (!has(name)) return std::nullopt;
    const std::string& value = text(name);
    int n = 0;
    const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), n);
    if (status == std::errc() && end == value.data() + value.size() && n >= low && n <= high) return n;
    error("{} must be an integer from {} to {}, got '{}'", name, low, high, value);
    return std::nullopt;
  }

  /// Sets `field` from `name`; a missing variable is an error.
  void require(int& field, const char* key, const std::string& name, int low, int high) {
    if (!has(name)) return error("{} is not set", name);
    const auto n = number(name, low, high);
    if (!n) return;
    field = *n;
    from(key, name);
  }

  void from(const char* key, const std::string& source) { place_.sources[key] = source; }

  template <typename... T>
  void error(fmt::format_string<T...> format, T&&... values) {
    errors_.push_back(fmt::format(format, std::forward<T>(values)...));
  }
  [[nodiscard]] const std::vector<std::string>& errors() const { return errors_; }

 private:
  const Environment& env_;
  RankEnvironment& place_;
  std::vector<std::string> errors_;
};

constexpr int kMaxRanks = 1 << 24;

void read_master(Reader& reader, RankEnvironment& place, const std::string& prefix) {
  const std::string address = prefix + "MASTER_ADDR", port = prefix + "MASTER_PORT";
  if (reader.has(address)) {
    place.master_address = reader.text(address);
    reader.from("master_address", address);
  } else {
    reader.error("{} is not set", address);
  }
  reader.require(place.master_port, "master_port", port, 1, 65535);
}

/// Whether Kubeflow's variables say that each node has one rank.
bool has_one_rank_per_node(const Reader& reader, int world) {
  if (reader.has("PET_NPROC_PER_NODE") && reader.text("PET_NPROC_PER_NODE") == "1") return true;
  return reader.has("PET_NNODES") && reader.text("PET_NNODES") == std::to_string(world);
}

void read_ranks(Reader& reader, RankEnvironment& place) {
  reader.require(place.rank, "rank", "RANK", 0, kMaxRanks);
  reader.require(place.world_size, "world_size", "WORLD_SIZE", 1, kMaxRanks);
  if (const auto n = reader.number("LOCAL_WORLD_SIZE", 1, kMaxRanks)) place.local_world_size = *n;
  if (reader.has("LOCAL_RANK")) {
    reader.require(place.local_rank, "local_rank", "LOCAL_RANK", 0, kMaxRanks);
  } else if (place.world_size == 1) {
    reader.from("local_rank", "the only rank");
  } else if (has_one_rank_per_node(reader, place.world_size)) {
    reader.from("local_rank", "one rank per node by PET_NNODES and PET_NPROC_PER_NODE");
  } else {
    reader.error("LOCAL_RANK is not set (0 where each machine has one rank)");
  }
  if (place.world_size > 1 || reader.has("MASTER_ADDR") || reader.has("MASTER_PORT"))
    read_master(reader, place, "");
  place.has_agent_store =
      reader.has("TORCHELASTIC_USE_AGENT_STORE") && reader.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  for (const char* name : {"TORCHELASTIC_RESTART_COUNT", "COLONNADE_RESTART_COUNT"}) {
    if (const auto n = reader.number(name, 0, kMaxRanks)) place.restart = *n;
  }
  place.launcher = reader.has("TORCHELASTIC_RUN_ID") ? "torchrun" : "environment";
}

void read_kubeflow(Reader& reader, RankEnvironment& place) {
  place.launcher = "kubeflow";
  reader.require(place.rank, "rank", "PET_NODE_RANK", 0, kMaxRanks);
  reader.require(place.world_size, "world_size", "PET_NNODES", 1, kMaxRanks);
  if (reader.has("PET_NPROC_PER_NODE") && reader.text("PET_NPROC_PER_NODE") != "1") {
    reader.error(
        "PET_NPROC_PER_NODE is '{}' but this process is one rank; start it with `colonnade launch` or "
        "torchrun",
        reader.text("PET_NPROC_PER_NODE"));
  }
  reader.from("local_rank", "one rank per node by PET_NPROC_PER_NODE");
  place.local_world_size = 1;
  if (place.world_size > 1) read_master(reader, place, "PET_");
}

/// Variable with the node list of the step, else of the job.
const char* slurm_node_list(const Reader& reader) {
  return reader.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST"
         : reader.has("SLURM_NODELIST")    ? "SLURM_NODELIST"
                                           : "SLURM_JOB_NODELIST";
}

/// Master address: the first host of the step, or loopback if it is the only one.
void read_slurm_address(Reader& reader, RankEnvironment& place) {
  const std::string list = slurm_node_list(reader);
  if (!reader.has(list))
    return reader.error("none of MASTER_ADDR, SLURM_STEP_NODELIST, SLURM_NODELIST is set");
  try {
    const std::vector<std::string> hosts = expand_node_list(reader.text(list), 2);
    if (hosts.empty()) return reader.error("{} names no host", list);
    place.master_address = hosts.size() == 1 ? "127.0.0.1" : hosts.front();
    if (hosts.size() == 1) place.local_world_size = place.world_size;
    reader.from("master_address", (hosts.size() == 1 ? "the only host of " : "the first host of ") + list);
  } catch (const ConfigError& error) {
    reader.error("{}: {}", list, error.what());
  }
}

/// Whether the node list has one host; false if it is malformed, because MASTER_ADDR replaces it.
bool has_one_slurm_host(const Reader& reader) {
  const std::string list = slurm_node_list(reader);
  try {
    return reader.has(list) && expand_node_list(reader.text(list), 2).size() == 1;
  } catch (const ConfigError&) {
    return false;
  }
}

void read_slurm_port(Reader& reader, RankEnvironment& place) {
  if (!reader.has("SLURM_JOB_ID")) return reader.error("neither MASTER_PORT nor SLURM_JOB_ID is set");
  const auto job = reader.number("SLURM_JOB_ID", 0, 2147483647);
  // Slurm sets no step id outside a step; its internal steps have ids near 2^32.
  const auto step = reader.has("SLURM_STEP_ID") ? reader.number("SLURM_STEP_ID", 0, 2147483647) : 0;
  if (!job || !step) return;
  // Below the ephemeral ports (32768 and up).
  constexpr std::int64_t kFirst = 20000, kCount = 12000, kPortsPerJob = 7;
  place.master_port = static_cast<int>(kFirst + (*job * kPortsPerJob + *step) % kCount);
  reader.from("master_port", "SLURM_JOB_ID and SLURM_STEP_ID");
}

/// Local world size, if consistent with the local rank and the world size.
void read_slurm_tasks(Reader& reader, RankEnvironment& place) {
  const int node = reader.has("SLURM_NODEID") ? reader.number("SLURM_NODEID", 0, kMaxRanks).value_or(-1) : -1;
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"}) {
    const int tasks = reader.has(name) ? tasks_of_node(reader.text(name), node) : 0;
    if (tasks <= place.local_rank || tasks > place.world_size) continue;
    place.local_world_size = tasks;
    return;
  }
}

/// Cores and GPU assigned to this task alone.
void read_slurm_resources(Reader& reader, RankEnvironment& place) {
  if (const auto n = reader.number("SLURM_CPUS_PER_TASK", 1, kMaxRanks)) place.cores = *n;
  for (const char* name : {"SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU"}) {
    if (!reader.has(name)) continue;
    const std::string& text = reader.text(name);  // "1", "a100:1"
    if (text.substr(text.rfind(':') + 1) == "1") place.exclusive_gpu = true;
  }
}

void read_slurm(Reader& reader, RankEnvironment& place) {
  place.launcher = "slurm";
  reader.require(place.rank, "rank", "SLURM_PROCID", 0, kMaxRanks);
  reader.require(place.world_size, "world_size", "SLURM_NTASKS", 1, kMaxRanks);
  reader.require(place.local_rank, "local_rank", "SLURM_LOCALID", 0, kMaxRanks);
  if (const auto n = reader.number("SLURM_RESTART_COUNT", 0, kMaxRanks)) place.restart = *n;
  read_slurm_tasks(reader, place);
  read_slurm_resources(reader, place);
  if (place.world_size == 1) return;
  if (reader.has("MASTER_ADDR")) {
    place.master_address = reader.text("MASTER_ADDR");
    reader.from("master_address", "MASTER_ADDR");
    if (has_one_slurm_host(reader)) place.local_world_size = place.world_size;
  } else {
    read_slurm_address(reader, place);
  }
  if (reader.has("MASTER_PORT")) {
    reader.require(place.master_port, "master_port", "MASTER_PORT", 1, 65535);
  } else {
    read_slurm_port(reader, place);
  }
}

/// In Kubernetes the master address of a job's first pod may be "localhost" although other ranks are in other
/// pods (older Kubeflow training operators, Polyaxon).
bool is_loopback(const Reader& reader, const std::string& address) {
  if (address == "localhost") return !reader.has("KUBERNETES_SERVICE_HOST");
  in_addr v4{};
  in6_addr v6{};
  if (::inet_pton(AF_INET, address.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
  return ::inet_pton(AF_INET6, address.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

void check_sizes(Reader& reader, const RankEnvironment& place) {
  if (!reader.errors().empty()) return;
  const auto source = [&](const char* key) { return place.sources.at(key); };
  if (place.rank >= place.world_size) {
    reader.error("{}={} must be below {}={}", source("rank"), place.rank, source("world_size"),
                 place.world_size);
  }
  if (place.local_world_size > place.world_size) {
    reader.error("LOCAL_WORLD_SIZE={} must not exceed {}={}", place.local_world_size, source("world_size"),
                 place.world_size);
  }
  const int most_local = place.local_world_size > 0 ? place.local_world_size : place.world_size;
  if (place.local_rank >= most_local) {
    reader.error("{}={} must be below the {} ranks of this machine", source("local_rank"), place.local_rank,
                 most_local);
  }
}

/// Appends the hosts of a range "n" or "n-m", with leading zeros kept.
void expand_range(const std::string& list, const std::string& head, const std::string& range,
                  std::size_t limit, std::vector<std::string>& hosts) {
  const std::size_t dash = range.find('-');
  const std::string first = range.substr(0, dash);
  const std::string last = dash == std::string::npos ? first : range.substr(dash + 1);
  const auto digits = [](const std::string& s) {
    return !s.empty() && s.size() <= 9 && s.find_first_not_of("0123456789") == std::string::npos;
  };
  if (!digits(first) || !digits(last) || std::stol(last) < std::stol(first)) {
    throw ConfigError(
        fmt::format("node list: a range must be N or N-M; got '{}' in '{}'; list the hosts", range, list));
  }
  for (long n = std::stol(first); n <= std::stol(last) && hosts.size() < limit; ++n) {
    hosts.push_back(fmt::format("{}{:0{}}", head, n, first.size()));
  }
}

struct TaskCount {
  int tasks = 0;  ///< per node; 0: malformed
  int nodes = 1;
};

/// Parses "8" or "8(x2)".
TaskCount tasks_and_nodes(const std::string& item) {
  TaskCount found;
  const char* const end = item.data() + item.size();
  const auto [rest, error] = std::from_chars(item.data(), end, found.tasks);
  if (error != std::errc() || found.tasks < 1) return {};
  if (rest == end) return found;
  const std::string_view times(rest, static_cast<std::size_t>(end - rest));
  if (!times.starts_with("(x") || !times.ends_with(")")) return {};
  const auto [last, wrong] = std::from_chars(rest + 2, end - 1, found.nodes);
  return wrong == std::errc() && last == end - 1 && found.nodes >= 1 ? found : TaskCount{};
}

}  // namespace

Environment environment_of_process() {
  Environment env;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) env.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return env;
}

std::vector<std::string> expand_node_list(const std::string& list, std::size_t limit) {
  std::vector<std::string> hosts;
  std::size_t at = 0;
  while (at < list.size() && hosts.size() < limit) {
    const std::size_t stop = list.find_first_of(",[", at);
    const std::string head = list.substr(at, stop == std::string::npos ? stop : stop - at);
    if (stop == std::string::npos || list[stop] == ',') {
      if (!head.empty()) hosts.push_back(head);
      at = stop == std::string::npos ? list.size() : stop + 1;
      continue;
    }
    const std::size_t close = list.find(']', stop);
    if (close == std::string::npos || (close + 1 < list.size() && list[close + 1] != ',')) {
      throw ConfigError(fmt::format(
          "node list: each [ must be closed by a ] that ends the name; got '{}'; set MASTER_ADDR", list));
    }
    for (std::size_t from = stop + 1; from <= close && hosts.size() < limit;) {
      const std::size_t comma = std::min(list.find(',', from), close);
      expand_range(list, head, list.substr(from, comma - from), limit, hosts);
      from = comma + 1;
    }
    at = close + 2;
  }
  return hosts;
}

RankEnvironment read_rank_environment(const Environment& env) {
  RankEnvironment place;
  Reader reader(env, place);
  if (reader.has("RANK") || reader.has("WORLD_SIZE")) {
    read_ranks(reader, place);
  } else if (reader.has("PET_NNODES") || reader.has("PET_NODE_RANK")) {
    read_kubeflow(reader, place);
  } else if (reader.has("SLURM_PROCID")) {
    read_slurm(reader, place);
  } else {
    place.local_world_size = 1;
  }
  place.loopback_master = is_loopback(reader, place.master_address);
  if (reader.has("COLONNADE_JOB_TOKEN")) place.job_token = reader.text("COLONNADE_JOB_TOKEN");
  check_sizes(reader, place);
  if (!reader.errors().empty()) {
    throw ConfigError(
        fmt::format("launcher variables ({}) must be complete and consistent; got: {}; start with `colonnade "
                    "launch`, torchrun or srun, or unset them for a single rank",
                    place.launcher, fmt::join(reader.errors(), "; ")));
  }
  return place;
}

int intra_op_threads(const RankEnvironment& place, int usable_cores) {
  const int share = place.cores > 0 ? place.cores : usable_cores / std::max(place.local_world_size, 1);
  return std::max(std::min(share, usable_cores), 1);
}

int tasks_of_node(const std::string& list, int node) {
  int nodes_before = 0;  // nodes of the items so far
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    const bool only = at == 0 && comma == list.size();
    const auto [tasks, nodes] = tasks_and_nodes(list.substr(at, comma - at));
    if (tasks == 0) return 0;
    nodes_before += nodes;
    // A single "8" holds for every node, as in SLURM_NTASKS_PER_NODE.
    if (only && (node < 0 || nodes == 1)) return tasks;
    if (node >= 0 && node < nodes_before) return tasks;
    at = comma + 1;
  }
  return 0;
}

std::string describe(const RankEnvironment& place) {
  if (place.launcher == "none") return "rank 0 of 1 (no launcher)";
  const auto source = [&](const char* key) {
    const auto it = place.sources.find(key);
    return it == place.sources.end() ? std::string("default") : it->second;
  };
  std::string text =
      fmt::format("rank {} of {} ({}, {}), local rank {} ({})", place.rank, place.world_size, source("rank"),
                  source("world_size"), place.local_rank, source("local_rank"));
  if (!place.master_address.empty()) {
    text += fmt::format(", master {}:{} ({}, {})", place.master_address, place.master_port,
                        source("master_address"), source("master_port"));
  }
  return text;
}

}  // namespace colonnade::launch
