// The record of a step out of what the job reports.
#pragma once

#include <optional>

#include "colonnade/job/job.h"
#include "colonnade/record/metrics.h"
#include "colonnade/train/step_exchange.h"

namespace colonnade::train {

/// The global values of the step that `job` has just done with `learning_rate`; `all`: of all ranks.
/// `peak_tflops` of a device: empty where it is not known. Collective with --log-params-norm.
record::StepRecord step_record(job::Job& job, const job::StepReport& report, const StepExchange& all,
                               double learning_rate, std::optional<double> peak_tflops);

}  // namespace colonnade::train
