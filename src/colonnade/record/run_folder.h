// The layout of a run folder: paths of all output files of a run.
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

/// RUN/config.yaml        all settings; used unchanged it starts or resumes the run
/// RUN/metrics.jsonl      one line per step; metrics.jsonl.1, ...: of runs that saved nothing here
/// RUN/validation.jsonl   one line per evaluation; validation.jsonl.1, ... as above
/// RUN/ledger.jsonl       one line per training session: the facts that decide its samples
/// RUN/sessions.json      layout, times and memory of each session
/// RUN/tensorboard/       event files
/// RUN/report.html        curves, layout, pipeline picture; opens without a network
/// RUN/checkpoints/       step_00000100/ ..., latest
/// RUN/torch_profile/     traces (train/step_profiler.h)
/// RUN/wandb/             offline runs of Weights & Biases (record/wandb.h); RUN/wandb_id.txt: their run id
/// RUN/owner.txt          the process that currently writes the folder (base/owner_lock.h)
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
  [[nodiscard]] std::filesystem::path wandb_id() const { return root / "wandb_id.txt"; }
  [[nodiscard]] std::filesystem::path owner() const { return root / "owner.txt"; }
};

/// Current local time in strftime's `format`.
std::string local_time(const char* format);
/// A given time in local time.
std::string local_time(const char* format, std::time_t when);

/// Name of this machine; "localhost" if unknown.
std::string host_name();

/// `save`, or for "" a new folder runs/<local time> (2026-11-21_13-04-08, with -2, -3, ... when it exists):
/// two runs of one second never choose the same. Throws as make_run_folder.
RunFolder choose_run_folder(const std::string& save);

/// Creates the folder and its checkpoints/ and checks that it is writable. Throws ConfigError with the
/// system's reason.
void make_run_folder(const RunFolder& folder);

/// A run folder owned by this process: no other process writes to it. The destructor releases the lock, and
/// removes a folder that was created here and is empty.
class OwnedFolder {
 public:
  /// Creates the folder and locks RUN/owner.txt. `steps_seen` are the steps of its checkpoints when the
  /// settings were read; nothing: unknown. Throws ConfigError with the owner when another process writes the
  /// folder, and when its checkpoints have changed.
  OwnedFolder(const std::string& save, const std::optional<std::vector<std::int64_t>>& steps_seen,
              OwnerLockOptions options = {});
  ~OwnedFolder();
  OwnedFolder(const OwnedFolder&) = delete;
  OwnedFolder& operator=(const OwnedFolder&) = delete;

  [[nodiscard]] const RunFolder& folder() const { return folder_; }
  /// Called before a checkpoint is written: ends the process when another one owns the folder by now.
  void confirm() const { lock_->confirm(); }

 private:
  void require_steps(const std::vector<std::int64_t>& seen) const;
  void remove_empty() const;

  bool created_;  ///< the folder did not exist before
  RunFolder folder_;
  std::unique_ptr<OwnerLock> lock_;
};

}  // namespace colonnade::record
