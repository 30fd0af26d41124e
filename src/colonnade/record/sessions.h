// RUN/sessions.json: data of the report for every session of a run, a session being one start of the program,
// new or resumed. Layout, ranks and times may differ between sessions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "colonnade/record/report.h"

namespace colonnade::record {

/// All of RunSummary except the settings. A missing file is an empty list. Throws DataError when it is
/// damaged.
std::vector<RunSummary> read_sessions(const std::filesystem::path& path);

/// Replaces the file in one rename. Throws Error.
void write_sessions(const std::filesystem::path& path, const std::vector<RunSummary>& sessions);

/// Sessions with steps that are still part of a run that resumes after step `loaded`.
std::vector<RunSummary> sessions_until(std::vector<RunSummary> sessions, std::int64_t loaded);

}  // namespace colonnade::record
