// Values of steps and evaluations under Megatron's tags, for TensorBoard and other trackers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "colonnade/config/training.h"
#include "colonnade/record/metrics.h"
#include "colonnade/record/phase_times.h"

namespace colonnade::record {

struct Scalar {
  std::string tag;
  double value = 0;
  bool versus_samples = false;  ///< also has a curve over samples
};

/// Values of a step: "lm loss", "learning-rate", "grad-norm", "loss-scale", "batch-size" and other losses
/// under their names, also over samples; those of single layers under event_tag; "throughput" (TFLOP/s per
/// device); where enabled "num-zeros", "iteration-time" (seconds), "<phase>-time" of the step's phases and
/// "mem-max-allocated-bytes". "skipped-iterations" is 1 for a skipped step. Steps that report energy have
/// "iter-energy/gpu" (joules, mean over GPUs) and "power/gpu" (watts).
std::vector<Scalar> step_scalars(const StepRecord& record, const PhaseTimes& phases, std::int64_t batch_size,
                                 const config::Logging& settings);

/// "lm loss validation", "sop loss validation"; where enabled also "... ppl". All have a curve over samples.
std::vector<Scalar> eval_scalars(const EvalRecord& record, const config::Logging& settings);

/// "<phase>-time".
std::string time_tag(Phase phase);

}  // namespace colonnade::record
