// See local_ranks.h. Progress pages are anonymous files accessed through /proc, so nothing is left behind if
// this process is killed.
#include "colonnade/launch/local_ranks.h"

#include <fmt/chrono.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/base/random_id.h"

namespace colonnade::launch {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

/// This process's environment with `changes` applied, and without TORCHELASTIC_* of an enclosing torchrun.
std::vector<std::string> environment_with(const Variables& changes) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    if (name.starts_with("TORCHELASTIC_")) continue;
    if (std::ranges::none_of(changes, [&](const auto& change) { return change.first == name; }))
      result.push_back(text);
  }
  for (const auto& [name, value] : changes) result.push_back(name + "=" + value);
  return result;
}

/// Job token: the given one, else random on a single node. Launchers of several nodes cannot agree on a
/// random one.
std::string job_token(const Options& options) {
  const char* const given = std::getenv("COLONNADE_JOB_TOKEN");
  if (given != nullptr || options.nnodes > 1) return given != nullptr ? given : "";
  return random_id();
}

Variables variables(const Options& o, int local_rank, int master_port, int restart) {
  Variables v{{"RANK", std::to_string(o.node_rank * o.nproc_per_node + local_rank)},
              {"WORLD_SIZE", std::to_string(o.nnodes * o.nproc_per_node)},
              {"LOCAL_RANK", std::to_string(local_rank)},
              {"LOCAL_WORLD_SIZE", std::to_string(o.nproc_per_node)},
              {"MASTER_ADDR", o.master_addr},
              {"MASTER_PORT", std::to_string(master_port)},
              {"COLONNADE_RESTART_COUNT", std::to_string(restart)}};
  if (std::getenv("OMP_NUM_THREADS") == nullptr)
    v.emplace_back("OMP_NUM_THREADS", std::to_string(std::max(usable_cores() / o.nproc_per_node, 1)));
  return v;
}

int create_memory_file(const char* name) {
  const int fd = ::memfd_create(name, MFD_CLOEXEC);
  if (fd < 0)
    throw Error(fmt::format("launch: {}: cannot create a file in memory; {}", name, std::strerror(errno)));
  return fd;
}

/// Path through which children can open a file of this process.
std::string path_of(int fd) { return fmt::format("/proc/{}/fd/{}", ::getpid(), fd); }

}  // namespace

LocalRanks::LocalRanks(const Options& options, Console& console, int master_port, int restart)
    : options_(options),
      console_(console),
      master_port_(master_port),
      restart_(restart),
      job_token_(job_token(options)),
      folder_fd_(create_memory_file("colonnade-run-folder")),
      polled_ns_(monotonic_ns()) {
  start(0);
}

LocalRanks::~LocalRanks() {
  kill_all();
  ::close(folder_fd_);
}

AnnouncedRun LocalRanks::announced() const {
  std::array<char, 16384> text{};
  const ssize_t got = ::pread(folder_fd_, text.data(), text.size(), 0);
  return parse_announcement({text.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))});
}

bool LocalRanks::start_next() {
  if (started() == options_.nproc_per_node) return false;
  start(started());
  return true;
}

void LocalRanks::start(int local_rank) {
  const int rank = options_.node_rank * options_.nproc_per_node + local_rank;
  const int page_fd = create_memory_file("colonnade-progress");
  Rank started{{.rank = rank},
               0,
               page_fd,
               ProgressReader(page_fd),
               RankOutput(options_.log_dir / fmt::format("rank_{}.log", rank))};
  auto changes = variables(options_, local_rank, master_port_, restart_);
  if (!job_token_.empty()) changes.emplace_back("COLONNADE_JOB_TOKEN", job_token_);
  changes.emplace_back("COLONNADE_PROGRESS_FILE", path_of(page_fd));
  changes.emplace_back(kRunFolderVariable, path_of(folder_fd_));
  started.output.write_header(fmt::format("--- rank {} of {}, {:%Y-%m-%dT%H:%M:%SZ}, restart {} ---\n", rank,
                                          options_.nnodes * options_.nproc_per_node,
                                          fmt::gmtime(std::time(nullptr)), restart_));
  try {
    started.pid = start_process(options_.command, environment_with(changes), started.output.write_end(),
                                options_.runs_this_executable);
  } catch (...) {
    ::close(page_fd);
    started.output.remove_log();
    throw;
  }
  started.output.close_write_end();
  ranks_.push_back(std::move(started));
}

void LocalRanks::copy_output() {
  for (Rank& rank : ranks_) rank.output.drain(console_, rank.view.rank == 0);
}

std::vector<int> LocalRanks::pipes() const {
  std::vector<int> open;
  for (const Rank& rank : ranks_)
    if (rank.output.read_end() >= 0) open.push_back(rank.output.read_end());
  return open;
}

void LocalRanks::poll() {
  const std::int64_t now = monotonic_ns();
  const double passed_s = std::min(static_cast<double>(now - polled_ns_) * 1e-9, 1.0);
  polled_ns_ = now;
  for (Rank& rank : ranks_) {
    if (rank.view.exit) continue;
    const StateChange change = poll_child(rank.pid);
    rank.view.exit = change.exit;
    if (change.exit) ::kill(-rank.pid, SIGKILL);  // kills its remaining children
    if (change.stopped || change.continued || change.exit) rank.stopped = change.stopped;
    rank.view.stopped_s = rank.stopped ? rank.view.stopped_s + passed_s : 0;
    const std::int64_t heartbeat_ns = rank.page.read().heartbeat_ns;
    const bool silent = heartbeat_ns != 0 && heartbeat_ns == rank.heartbeat_ns;
    rank.view.silent_s = silent ? rank.view.silent_s + passed_s : 0;
    rank.heartbeat_ns = heartbeat_ns;
  }
}

std::vector<RankView> LocalRanks::views() const {
  std::vector<RankView> views;
  for (const Rank& rank : ranks_) {
    views.push_back(rank.view);
    views.back().page = rank.page.read();
  }
  return views;
}

bool LocalRanks::all_exited() const {
  return std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.view.exit.has_value(); });
}

void LocalRanks::send(int signal) const {
  for (const Rank& rank : ranks_) {
    if (!rank.view.exit) ::kill(-rank.pid, signal);
  }
}

void LocalRanks::kill_stopped() const {
  for (const Rank& rank : ranks_) {
    if (!rank.view.exit && rank.stopped) ::kill(-rank.pid, SIGKILL);
  }
}

void LocalRanks::kill_all() {
  send(SIGKILL);
  for (Rank& rank : ranks_) {
    if (!rank.view.exit) ::waitpid(rank.pid, nullptr, 0);
    ::close(rank.page_fd);
  }
  copy_output();
}

const LocalRanks::Rank& LocalRanks::of(int rank) const {
  const auto found = std::ranges::find(ranks_, rank, [](const Rank& r) { return r.view.rank; });
  COL_CHECK(found != ranks_.end(), "launch: the rank must be one of the {} on this machine; got rank {}",
            ranks_.size(), rank);
  return *found;
}

}  // namespace colonnade::launch
