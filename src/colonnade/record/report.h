// report.html: one page that shows a run to a person, opened without a network, light or dark.
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

/// What one rank owns and needs.
struct RankSummary {
  int rank = 0;
  std::string place;  ///< "tp 0, pp 1, dp 0"
  std::string owns;   ///< "layers 4-7, final norm, output"
  std::int64_t parameters = 0;
  MemoryPeaks planned;
  MemoryPeaks measured;  ///< since this process began
};

/// What the page needs of one session of the run (one start of the program), beside the run's own files.
struct RunSummary {
  std::string title;                                       ///< "gpt, 12.4 M parameters on 4 ranks"
  std::vector<std::pair<std::string, std::string>> facts;  ///< a line each under the title
  std::vector<RankSummary> ranks;
  std::string pipeline_svg;  ///< schedule::paint_svg; "" without a pipeline
  PhaseTimes times;          ///< of rank 0, since this process began to train
  double wall_seconds = 0;   ///< of the same span
  std::string settings;      ///< config.yaml
  std::int64_t first_step = 1;
  std::int64_t last_step = 0;  ///< before first_step: the session has not trained
  std::string began;           ///< local time, "2026-11-21 13:04"
};

/// The page as text. `sessions` in the order in which they ran, at least one; the curves hold the steps
/// of all, and with more than one the page shows layout, times and memory of each.
std::string make_report(const std::vector<RunSummary>& sessions, const std::vector<StepRecord>& steps,
                        const std::vector<EvalRecord>& evals);

/// Reads metrics.jsonl and validation.jsonl of the folder and replaces its report.html, atomically.
/// Throws DataError for damaged metrics, Error when the page cannot be written.
void write_report(const RunFolder& folder, const std::vector<RunSummary>& sessions);

}  // namespace colonnade::record
