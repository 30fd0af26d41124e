// The ranks of this machine, started one after the other and ended together.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "colonnade/launch/logs.h"
#include "colonnade/launch/options.h"
#include "colonnade/launch/verdict.h"
#include "colonnade/launch/way_on.h"

namespace colonnade::launch {

/// One start of the local ranks. Each finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
/// MASTER_ADDR, MASTER_PORT, COLONNADE_PROGRESS_FILE, COLONNADE_RUN_FOLDER_FILE, COLONNADE_RESTART_COUNT,
/// COLONNADE_JOB_TOKEN (random where one machine has all ranks, unless it is set) and OMP_NUM_THREADS (cores
/// / local ranks, unless it is set) in its environment; its output is appended to <log_dir>/rank_N.log.
class World {
 public:
  /// Starts the first rank. `options` outlives this and is complete: log_dir (which exists), master_addr and
  /// command are given. Throws ConfigError when the program cannot be started or a log cannot be written.
  World(const Options& options, Console& console, int master_port, int restart);
  /// Kills what still lives; what it has printed is in the logs.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Starts the next rank; false when all have been. Throws as the constructor does.
  bool start_next();
  /// Takes note of ended, stopped and silent ranks. Time in which nobody looked (this process was
  /// stopped itself) counts as one second at most.
  void look();
  [[nodiscard]] std::vector<RankView> views() const;
  [[nodiscard]] bool all_ended() const;
  /// To the process groups of all living ranks.
  void send(int signal) const;
  /// SIGKILL to the ranks that are stopped: they cannot act on anything else.
  void kill_stopped() const;
  /// The run as rank 0 has announced it; empty while it has not, and on machines without that rank.
  [[nodiscard]] AnnouncedRun announced() const;
  /// Copies what the ranks have printed to their logs; rank 0's to the console too.
  void copy_output();
  /// The pipes of the ranks, for poll(2).
  [[nodiscard]] std::vector<int> pipes() const;
  [[nodiscard]] const RankOutput& output(int rank) const { return of(rank).output; }
  [[nodiscard]] int first_rank() const { return ranks_.front().view.rank; }
  [[nodiscard]] int started() const { return static_cast<int>(ranks_.size()); }

 private:
  struct Rank {
    RankView view;  // without the page's content, which views() reads afresh
    pid_t pid;
    int page_fd;
    ProgressReader page;
    RankOutput output;
    std::int64_t alive_ns = 0;
    bool stopped = false;
  };
  void start(int local_rank);
  void end_all();
  [[nodiscard]] const Rank& of(int rank) const;

  const Options& options_;
  Console& console_;
  int master_port_;
  int restart_;
  std::string job_token_;  ///< of the ranks of this start
  int folder_fd_;          // of the file that kRunFolderFile names
  std::vector<Rank> ranks_;
  std::int64_t looked_ns_;
};

}  // namespace colonnade::launch
