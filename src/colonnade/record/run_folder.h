// The layout of a run folder: where everything lies that a run leaves behind.
#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/base/owner_lock.h"

namespace colonnade::record {

/// RUN/config.yaml        all settings; as it is it begins the run, or goes on after its newest checkpoint
/// RUN/metrics.jsonl      one line per step; metrics.jsonl.1, ...: of earlier runs that saved nothing here
/// RUN/validation.jsonl   one line per evaluation; validation.jsonl.1, ... as above
/// RUN/ledger.jsonl       one line per start of the program that trains: what decides its samples
/// RUN/sessions.json      layout, times and memory of each start of the program for this run
/// RUN/tensorboard/       event files
/// RUN/report.html        curves, layout, pipeline picture; opens without a network
/// RUN/checkpoints/       step_00000100/ ..., latest
/// RUN/owner.txt          the process that writes the folder now (base/owner_lock.h)
struct RunFolder {
  std::filesystem::path root;

  [[nodiscard]] std::filesystem::path config() const { return root / "config.yaml"; }
  [[nodiscard]] std::filesystem::path metrics() const { return root / "metrics.jsonl"; }
  [[nodiscard]] std::filesystem::path validation() const { return root / "validation.jsonl"; }
  [[nodiscard]] std::filesystem::path ledger() const { return root / "ledger.jsonl"; }
  [[nodiscard]] std::filesystem::path sessions() const { return root / "sessions.json"; }
  [[nodiscard]] std::filesystem::path tensorboard() const { return root / "tensorboard"; }
  [[nodiscard]] std::filesystem::path report() const { return root / "report.html"; }
  [[nodiscard]] std::filesystem::path checkpoints() const { return root / "checkpoints"; }
  [[nodiscard]] std::filesystem::path owner() const { return root / "owner.txt"; }
};

/// Now on this machine's clock, as strftime writes `format`.
std::string local_time(const char* format);
/// Another time on it.
std::string local_time(const char* format, std::time_t when);

/// `save`, or for "" a folder runs/<local time> (2026-11-21_13-04-08, with -2, -3, ... when it is taken),
/// which is made: two runs of one second never choose the same. Throws as make_run_folder.
RunFolder choose_run_folder(const std::string& save);

/// Makes the folder and its checkpoints/ and finds out that it can be written. Throws ConfigError with
/// the system's reason.
void make_run_folder(const RunFolder& folder);

/// A run folder that this process owns: nobody else writes any file of it. At the end of its life the lock is
/// released; a folder that was made for it and holds nothing is removed.
class OwnedFolder {
 public:
  /// Makes the folder and takes RUN/owner.txt. `steps_seen` are the steps of its checkpoints when the
  /// settings were read; nothing: not known. Throws ConfigError with the owner when another process writes
  /// the folder, and when its checkpoints are others by now.
  OwnedFolder(const std::string& save, const std::optional<std::vector<std::int64_t>>& steps_seen,
              OwnerLockOptions options = {});
  ~OwnedFolder();
  OwnedFolder(const OwnedFolder&) = delete;
  OwnedFolder& operator=(const OwnedFolder&) = delete;

  [[nodiscard]] const RunFolder& folder() const { return folder_; }
  /// Before a checkpoint is written: ends the process where another one owns the folder by now.
  void confirm() const { lock_->confirm(); }

 private:
  void require_steps(const std::vector<std::int64_t>& seen) const;
  void remove_empty() const;

  bool made_;  ///< the folder was not there before
  RunFolder folder_;
  std::unique_ptr<OwnerLock> lock_;
};

}  // namespace colonnade::record
