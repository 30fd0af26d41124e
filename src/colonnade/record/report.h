// report.html: one page with the results of a run; opens without a network, in light or dark mode.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "colonnade/record/memory.h"
#include "colonnade/record/metrics.h"
#include "colonnade/record/phase_times.h"
#include "colonnade/record/run_folder.h"

namespace colonnade::record {

/// Placement and memory of one rank.
struct RankSummary {
  int rank = 0;
  std::string coordinates;  ///< "tp 0, pp 1, dp 0"
  std::string blocks;       ///< "layers 4-7, final norm, output"
  std::int64_t parameters = 0;
  MemoryPeaks planned;
  MemoryPeaks measured;  ///< since this process started
};

/// Data of one session of the run (one start of the program) for the page, besides the run's own files.
struct RunSummary {
  std::string title;                                       ///< "gpt, 12.4 M parameters on 4 ranks"
  std::vector<std::pair<std::string, std::string>> facts;  ///< lines under the title
  std::vector<RankSummary> ranks;
  std::string pipeline_svg;  ///< schedule::render_svg; "" without a pipeline
  PhaseTimes times;          ///< of rank 0, since this process started training
  double wall_seconds = 0;   ///< duration of the same period
  std::string settings;      ///< config.yaml
  std::int64_t first_step = 1;
  std::int64_t last_step = 0;  ///< below first_step: the session trained no step
  std::string began;           ///< local time, "2026-11-21 13:04"
};

/// The page as text. `sessions` are in chronological order, at least one; the curves show the steps of all
/// sessions, and with more than one the page shows layout, times and memory of each.
std::string make_report(const std::vector<RunSummary>& sessions, const std::vector<StepRecord>& steps,
                        const std::vector<EvalRecord>& evals);

/// Reads metrics.jsonl and validation.jsonl of the folder and replaces its report.html, atomically.
/// Throws DataError for damaged metrics, Error when the page cannot be written.
void write_report(const RunFolder& folder, const std::vector<RunSummary>& sessions);

}  // namespace colonnade::record
