// Output files of a run on rank 0: log lines, metrics, events, report.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/record/metrics.h"
#include "colonnade/record/phase_times.h"
#include "colonnade/record/report.h"
#include "colonnade/record/run_folder.h"
#include "colonnade/record/tensorboard.h"
#include "colonnade/record/throughput.h"
#include "colonnade/record/wandb.h"

namespace colonnade::record {

/// Writes the records of a run on rank 0; on other ranks every call has no effect.
class Recorder {
 public:
  /// Creates the run folder and its files, and removes records of steps after `loaded`. An evaluation only
  /// (--skip-train) in the folder of a run adds its result and changes nothing else. Throws ConfigError when
  /// the folder cannot be written. `saved`: the loaded checkpoint's own counters where
  /// --override-ckpt-iteration differs; then records later than either are removed.
  Recorder(const RunFolder& folder, const config::Run& run, const ResumePoint& loaded, bool active,
           const std::optional<ResumePoint>& saved = std::nullopt);

  /// Ends the offline run of W&B: with exit code 1 during stack unwinding.
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Reports that this process has saved a checkpoint in the run folder: config.yaml now resumes from it.
  void checkpoint_saved();
  void step(const StepRecord& record, const PhaseTimes& phases, std::int64_t last_iteration);
  /// Whether a step gets a log line: every --log-interval steps, and the last one.
  [[nodiscard]] bool logs_step(std::int64_t iteration, std::int64_t last_iteration) const;
  void evaluation(const EvalRecord& record);
  /// Seconds of a phase outside of steps, after step `step`.
  void phase_time(Phase phase, double seconds, std::int64_t step);
  /// Rewrites sessions.json and report.html; a failure is a warning.
  void report(RunSummary summary, const PhaseTimes& total, double wall_seconds);

 private:
  void write_config() const;
  void open_wandb(std::int64_t loaded_step);
  /// Batch size of the step, for trackers.
  [[nodiscard]] std::int64_t batch_size_of(const StepRecord& record) const;

  RunFolder folder_;
  config::Run run_;
  bool active_;
  bool evaluates_only_ = false;  ///< the folder belongs to a run that this process does not train
  bool has_saved_ = false;
  std::vector<RunSummary> earlier_;  ///< earlier sessions of the run
  std::int64_t first_step_, last_step_;
  std::string began_;
  std::optional<MetricsFile> steps_, evaluations_;
  std::optional<EventFile> events_;
  std::optional<WandbFile> wandb_;
  std::optional<TimeLeft> time_left_;
};

}  // namespace colonnade::record
