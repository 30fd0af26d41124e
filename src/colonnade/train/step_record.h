// Builds the records of a step from the job's report.
#pragma once

#include <optional>

#include "colonnade/job/job.h"
#include "colonnade/job/token_steps.h"
#include "colonnade/record/metrics.h"
#include "colonnade/record/phase_times.h"
#include "colonnade/train/step_exchange.h"

namespace colonnade::train {

/// Record of the step that `job` has just done with `learning_rate`; `all`: values reduced over all ranks.
/// `peak_tflops`: peak of one device, empty where unknown. Collective with --log-params-norm.
record::StepRecord step_record(job::Job& job, const job::StepReport& report, const StepExchange& all,
                               double learning_rate, std::optional<double> peak_tflops);

/// Times of a step's phases on this rank.
record::PhaseTimes phase_times(const job::StepReport& report, const job::DataWait& data);

/// Values of this rank after a step, for record::rank_values: times, live and peak bytes of `device`,
/// joules.
record::OwnValues own_values(const job::StepReport& report, const job::DataWait& data, at::Device device,
                             double energy_j);

}  // namespace colonnade::train
