// The ranks of this machine, started one after the other and ended together.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <vector>

#include "colonnade/launch/options.h"
#include "colonnade/launch/verdict.h"

namespace colonnade::launch {

/// One start of the local ranks. Each finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
/// MASTER_ADDR, MASTER_PORT, COLONNADE_PROGRESS_FILE, COLONNADE_RUN_FOLDER_FILE, COLONNADE_RESTART_COUNT,
/// COLONNADE_JOB_TOKEN (random where one machine has all ranks, unless it is set) and OMP_NUM_THREADS (cores /
/// local ranks, unless it is set) in its environment, and appends to <log_dir>/rank_N.log.
class World {
 public:
  /// Starts the first rank. `options` outlives this and is complete: log_dir, master_addr and command are
  /// given. Throws ConfigError when the program cannot be started or a log cannot be written.
  World(const Options& options, int master_port, int restart);
  /// Kills what still lives.
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
  [[nodiscard]] const std::filesystem::path& log_path(int rank) const { return of(rank).log; }
  /// Where this start begins in the log.
  [[nodiscard]] off_t log_start(int rank) const { return of(rank).log_start; }
  /// Where rank 0 keeps what it saves (announce_run_folder); "" while it is not known, and on machines
  /// without it.
  [[nodiscard]] std::string run_folder() const;
  [[nodiscard]] int first_rank() const { return ranks_.front().view.rank; }
  [[nodiscard]] int started() const { return static_cast<int>(ranks_.size()); }

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
  void start(int local_rank);
  /// A log that was just begun, and the folders that were made for it where nothing else is in them.
  void remove(const std::filesystem::path& log) const;
  void end_all();
  [[nodiscard]] const Rank& of(int rank) const;

  const Options& options_;
  int master_port_;
  int restart_;
  std::string job_token_;                    ///< of the ranks of this start
  int folder_fd_;                            // of the file that kRunFolderFile names
  std::vector<std::filesystem::path> made_;  ///< folders that were not there before, the innermost first
  std::vector<Rank> ranks_;
  std::int64_t looked_ns_;
};

}  // namespace colonnade::launch
