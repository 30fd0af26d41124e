// Checks of a step's losses, gradients and weights for the silent errors of a device.
// Source: Megatron's core/rerun_state_machine.py (is_unexpectedly_large) and core/utils.py
// (check_param_hashes_across_dp_replicas). Steps are not rerun here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "colonnade/config/training.h"
#include "colonnade/job/job.h"

namespace colonnade::train {

/// Detects values far above those seen first.
class OutlierCheck {
 public:
  static constexpr int kSamples = 100;
  static constexpr double kFactor = 10;

  /// Whether |value| is at least kFactor times the maximum of the first kSamples values. These are recorded;
  /// NaN and infinity are ignored, because they have a check of their own.
  bool is_outlier(double value);
  [[nodiscard]] double maximum() const { return maximum_; }

 private:
  int samples_ = 0;
  double maximum_ = 0;
};

/// --check-for-spiky-loss and --check-for-large-grads of one rank. The first values after the process starts
/// are the reference, as in Megatron.
class StepChecks {
 public:
  /// One sentence for each micro-batch loss and each gradient bucket of the step `iteration` that is an
  /// outlier on this rank. Nothing stops: the sentences are warnings.
  std::vector<std::string> outliers(const job::StepReport& report, std::int64_t iteration, int rank);

 private:
  OutlierCheck losses_, grads_;
};

/// Whether --check-weight-hash-across-dp-replicas-interval is due after `iteration`.
bool weight_hash_due(const config::Training& training, std::int64_t iteration);

/// Throws CommError on every rank when the values of a parameter differ between data-parallel replicas, with
/// its name, the ranks that differ from the majority and the iteration. XXH3-128 of each rank's values are
/// compared, over the data axes of each parameter group. Copies all parameters to the host. Communication:
/// two or three gathers of texts. Collective over the world.
void require_equal_replicas(job::Job& job);

}  // namespace colonnade::train
