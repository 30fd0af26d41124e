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

/// Logs title, folder, facts and the first 16 ranks of `summary`.
void log_summary(const RunSummary& summary, const RunFolder& folder);
/// memory_line of memory.h for these ranks.
std::string memory_line(const std::vector<RankSummary>& ranks);

/// Warns when attention does not use the fast kernels, with the fix.
void warn_about_slow_attention(const config::Model& m, bool cuda);

}  // namespace colonnade::record
