// The verdict on a layout: whether it fits the devices, and the time of the whole run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "colonnade/config/run.h"
#include "colonnade/cost/hardware.h"

namespace colonnade::cost {

class ModelCost;

/// Seconds in a readable unit: "9.60 ms", "137.2 s", "14.3 min", "5.5 h", "3.97 days".
std::string duration_text(double seconds);

/// Peak memory (max over ranks) and usable memory of one device, in bytes.
struct Fit {
  double needed = 0, usable = 0;
  [[nodiscard]] bool fits() const { return needed <= usable; }
};
/// Counts start-up, training steps and evaluations, as the search does. Throws as plan_memory does.
Fit fit_of(const config::Run& run, const Hardware& hardware);
Fit fit_of(const ModelCost& model, const Hardware& hardware);
/// The verdict as text: "fits: 62.5 of 74 GiB", "does not fit: 216 of 74 GiB".
std::string fit_text(const Fit& fit);

/// Time of all training steps, without evaluations, checkpoints and restarts.
struct RunTime {
  std::int64_t steps = 0;
  int devices = 0;
  double seconds = 0;
  [[nodiscard]] double gpu_hours() const { return seconds / 3600 * devices; }
  [[nodiscard]] double days() const { return seconds / 86400; }
};
/// `step_seconds`: of a step with the final batch size; smaller steps take time in proportion. nullopt
/// without a length (--train-iters or --train-samples) or without training.
std::optional<RunTime> run_time(const config::Run& run, double step_seconds);
/// The run time as text: "run of 2,500 steps: 3.97 days, 6,098 GPU-hours on 64 GPUs ...".
std::string run_time_text(const RunTime& time);

}  // namespace colonnade::cost
