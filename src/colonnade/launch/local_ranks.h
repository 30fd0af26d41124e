// The ranks of this machine: started one by one, stopped together.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "colonnade/launch/diagnosis.h"
#include "colonnade/launch/logs.h"
#include "colonnade/launch/options.h"
#include "colonnade/launch/resume_hint.h"

namespace colonnade::launch {

/// One (re)start of the local ranks. The environment of each rank has RANK, WORLD_SIZE, LOCAL_RANK,
/// LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, COLONNADE_PROGRESS_FILE, COLONNADE_RUN_FOLDER_FILE,
/// COLONNADE_RESTART_COUNT, COLONNADE_JOB_TOKEN (unless set: random on a single node) and OMP_NUM_THREADS
/// (unless set: cores / local ranks). Its output is appended to <log_dir>/rank_N.log.
class LocalRanks {
 public:
  /// Starts the first rank. `options` must outlive this and be complete: log_dir (an existing folder),
  /// master_addr and command are set. Throws ConfigError if the program cannot be started or a log cannot be
  /// written.
  LocalRanks(const Options& options, Console& console, int master_port, int restart);
  /// Kills the remaining ranks after copying their output to the logs.
  ~LocalRanks();
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  /// Starts the next rank; false if all are started. Throws as the constructor does.
  bool start_next();
  /// Updates the state of every rank: exited, stopped or without a heartbeat. A gap between polls (this
  /// process was suspended) counts as one second at most.
  void poll();
  [[nodiscard]] std::vector<RankView> views() const;
  [[nodiscard]] bool all_exited() const;
  /// Sends `signal` to the process groups of all running ranks.
  void send(int signal) const;
  /// Sends SIGKILL to the stopped ranks, which cannot react to any other signal.
  void kill_stopped() const;
  /// The run announced by rank 0; empty before that, and on machines without rank 0.
  [[nodiscard]] AnnouncedRun announced() const;
  /// Copies the ranks' output to their logs, and rank 0's to the console too.
  void copy_output();
  /// Read ends of the ranks' pipes, for poll(2).
  [[nodiscard]] std::vector<int> pipes() const;
  [[nodiscard]] const RankOutput& output(int rank) const { return of(rank).output; }
  [[nodiscard]] int first_rank() const { return ranks_.front().view.rank; }
  [[nodiscard]] int started() const { return static_cast<int>(ranks_.size()); }

 private:
  struct Rank {
    RankView view;  // without the page's content, which views() reads
    pid_t pid;
    int page_fd;
    ProgressReader page;
    RankOutput output;
    std::int64_t heartbeat_ns = 0;
    bool stopped = false;
  };
  void start(int local_rank);
  void kill_all();
  [[nodiscard]] const Rank& of(int rank) const;

  const Options& options_;
  Console& console_;
  int master_port_;
  int restart_;
  std::string job_token_;  ///< token of this start
  int folder_fd_;          ///< of the file named by kRunFolderVariable
  std::vector<Rank> ranks_;
  std::int64_t polled_ns_;
};

}  // namespace colonnade::launch
