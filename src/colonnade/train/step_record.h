// Builds the record of a step from the job's report.
#pragma once

#include <optional>

#include "colonnade/job/job.h"
#include "colonnade/record/metrics.h"
#include "colonnade/train/step_exchange.h"

namespace colonnade::train {

/// Record of the step that `job` has just done with `learning_rate`; `all`: values reduced over all ranks.
/// `peak_tflops`: peak of one device, empty where unknown. Collective with --log-params-norm.
record::StepRecord step_record(job::Job& job, const job::StepReport& report, const StepExchange& all,
                               double learning_rate, std::optional<double> peak_tflops);

}  // namespace colonnade::train
