// The ranks of this machine, started together and ended together.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <vector>

#include "colonnade/launch/options.h"
#include "colonnade/launch/verdict.h"

namespace colonnade::launch {

/// One start of all local ranks. Each finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
/// MASTER_ADDR, MASTER_PORT, COLONNADE_PROGRESS_FILE, COLONNADE_RESTART_COUNT and OMP_NUM_THREADS
/// (cores / local ranks, unless it is set) in its environment, and appends to <log_dir>/rank_N.log.
class World {
 public:
  /// `options` is complete: log_dir, master_addr and command are given. Throws ConfigError when the
  /// program cannot be started or a log cannot be written; ranks started before are killed then.
  World(const Options& options, int master_port, int restart);
  /// Kills what still lives.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Takes note of ended, stopped and silent ranks. Time in which nobody looked (this process was
  /// stopped itself) counts as one second at most.
  void look();
  [[nodiscard]] std::vector<RankView> views() const;
  [[nodiscard]] bool all_ended() const;
  /// To the process groups of all living ranks.
  void send(int signal) const;
  /// SIGKILL to the ranks that are stopped: they cannot act on anything else.
  void kill_stopped() const;
  [[nodiscard]] const std::filesystem::path& log_path(int rank) const { return of(rank).log; }
  /// Where this start begins in the log.
  [[nodiscard]] off_t log_start(int rank) const { return of(rank).log_start; }
  [[nodiscard]] int first_rank() const { return ranks_.front().view.rank; }

 private:
  struct Rank {
    RankView view;  // without the page's content, which views() reads afresh
    pid_t pid;
    int page_fd;
    ProgressReader page;
    std::filesystem::path log;
    off_t log_start;
    std::int64_t alive_ns = 0;
    bool stopped = false;
  };
  void start(const Options& options, int local_rank, int master_port, int restart);
  void end_all();
  [[nodiscard]] const Rank& of(int rank) const;

  std::vector<Rank> ranks_;
  std::int64_t looked_ns_;
};

}  // namespace colonnade::launch
