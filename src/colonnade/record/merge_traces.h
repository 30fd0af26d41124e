// Merging of the ranks' Chrome traces into one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "colonnade/record/report.h"

namespace colonnade::record {

/// Trace of one rank, as Kineto writes it.
struct RankTrace {
  int rank = 0;
  std::string name;  ///< "rank 1 (tp 1, pp 0, dp 0)"
  std::filesystem::path file;
};

/// Writes one Chrome trace with a process per rank: pid is the rank, named and sorted as such. Threads and
/// CUDA streams keep their numbers. Times are relative to the base time of the first trace; flow ids become
/// "<rank>.<id>". Replaces `out` in one rename. Memory: one event at a time. Returns the number of events.
/// Throws DataError for a file that is not a trace, Error when `out` cannot be written.
std::int64_t merge_traces(const std::vector<RankTrace>& traces, const std::filesystem::path& out);

/// Names of the ranks' processes in a merged trace, by rank: "rank 1 (tp 1, pp 0, dp 0)".
std::vector<std::string> process_names(const std::vector<RankSummary>& ranks);

}  // namespace colonnade::record
