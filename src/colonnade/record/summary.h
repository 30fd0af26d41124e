// What the log and the report say of a run before its first step: sizes, layout, pipeline picture.
#pragma once

#include <string>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/job/job.h"
#include "colonnade/record/report.h"

namespace colonnade::record {

/// Title, facts, every rank's place and parameters, the schedule's picture. Collective over the world.
RunSummary summarize(job::Job& job);

/// A warning where attention takes no fast kernel, with what does.
void warn_of_slow_attention(const config::Model& m, bool cuda);

}  // namespace colonnade::record
