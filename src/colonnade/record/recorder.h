// What a run leaves behind on rank 0: lines, metrics, events, report.
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

namespace colonnade::record {

/// Writes for rank 0; on other ranks every call does nothing.
class Recorder {
 public:
  /// Makes the run folder and its files; what they hold of steps after `loaded` is cut off. A validation
  /// alone (--skip-train) in the folder of a run adds its result and leaves everything else as it is. Throws
  /// ConfigError when the folder cannot be written. `saved`: what the loaded checkpoint had come to, where
  /// --override-ckpt-iteration says another number; then what is later than either is cut off.
  Recorder(const RunFolder& folder, const config::Run& run, const Loaded& loaded, bool active,
           const std::optional<Loaded>& saved = std::nullopt);

  /// The first checkpoint of this process is in the run folder: config.yaml goes on from there.
  void saved();
  void step(const StepRecord& record, const PhaseTimes& phases, std::int64_t last_iteration);
  /// Whether a step's line is shown: every --log-interval steps, and of the last.
  [[nodiscard]] bool shows(std::int64_t iteration, std::int64_t last_iteration) const;
  void evaluation(const EvalRecord& record);
  /// Seconds of a phase that not every step has, after step `step`.
  void time(Phase phase, double seconds, std::int64_t step);
  /// sessions.json and report.html anew; a failure is a warning.
  void report(RunSummary summary, const PhaseTimes& total, double wall_seconds);

 private:
  void write_config() const;

  RunFolder folder_;
  config::Run run_;
  bool active_;
  bool visits_ = false;  ///< the folder belongs to a run that this process does not train
  bool has_saved_ = false;
  std::vector<RunSummary> earlier_;  ///< sessions of the run before this one
  std::int64_t first_step_, last_step_;
  std::string began_;
  std::optional<MetricsFile> steps_, evaluations_;
  std::optional<EventFile> events_;
  std::optional<TimeLeft> left_;
};

}  // namespace colonnade::record
