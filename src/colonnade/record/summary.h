// Summary of a run before its first step, for log and report: sizes, layout, pipeline picture.
#pragma once

#include <string>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/job/job.h"
#include "colonnade/record/report.h"

namespace colonnade::record {

/// Title, facts, every rank's coordinates and parameters, picture of the schedule. Collective over the world.
RunSummary summarize(job::Job& job);

/// Warns when attention does not use the fast kernels, with the fix.
void warn_about_slow_attention(const config::Model& m, bool cuda);

}  // namespace colonnade::record
