// Metrics of a run as lines of JSON: metrics.jsonl (one per step) and validation.jsonl (one per evaluation).
// Written by rank 0 only; all values are global.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "colonnade/record/append_file.h"
#include "colonnade/record/layer_metrics.h"
#include "colonnade/record/rank_values.h"

namespace colonnade::record {

/// One step. The keys are these names, in this order, followed by other losses.
struct StepRecord {
  std::int64_t iteration = 0;         ///< 1 for the first step of the run
  std::int64_t consumed_samples = 0;  ///< after the step, skipped ones included
  std::int64_t consumed_tokens = 0;
  double lm_loss = 0;                     ///< mean over the tokens of the global batch, before the update
  double grad_norm = 0;                   ///< global L2 norm before clipping
  double learning_rate = 0;               ///< used in this step
  double loss_scale = 1;                  ///< used in this step
  std::optional<std::int64_t> num_zeros;  ///< zero elements of the gradient; empty: not counted
  bool skipped = false;                   ///< no update: the gradient was not finite, or --iterations-to-skip
  double step_ms = 0;                     ///< wall time of the slowest rank
  double tokens_per_second = 0;           ///< of the full job
  double tflops_per_device = 0;           ///< model FLOPs / (time * devices) / 1e12
  std::optional<double> mfu;              ///< share of the device's peak; empty where unknown (CPU)
  std::uint64_t peak_memory_bytes = 0;    ///< peak of the step, maximum over ranks; tensor allocator
  int peak_memory_rank = 0;
  std::optional<std::int64_t> global_batch_size;  ///< of the step, in runs with a batch-size schedule
  std::vector<std::pair<std::string, double>> extra_losses;  ///< "load_balancing_loss", ...
  std::vector<LayerMetric> layer_metrics;                    ///< arrays with one number per layer
  std::vector<RankValue> rank_values;                        ///< only on steps that report values of ranks
  std::vector<LayerCounts> layer_counts;  ///< arrays with an array per layer; only on steps with a log line
  std::vector<LayerLosses> layer_losses;  ///< "<name>_by_layer": objects from layer number to loss

  friend bool operator==(const StepRecord&, const StepRecord&) = default;
};

/// One evaluation.
struct EvalRecord {
  std::int64_t iteration = 0;
  std::int64_t consumed_samples = 0;
  std::string set = "validation";  ///< "validation", "validation-0" or another of several sets, or "test"
  double loss = 0;                 ///< mean over tokens
  double seconds = 0;
  std::optional<double> sop_loss;  ///< sentence-order loss, mean over samples; empty without this head

  [[nodiscard]] double perplexity() const;  ///< exp(min(20, loss)), as in Megatron
  friend bool operator==(const EvalRecord&, const EvalRecord&) = default;
};

/// One line without its newline. NaN and infinity, which JSON does not have, are written as null and read
/// back as NaN.
std::string to_json_line(const StepRecord& record);
std::string to_json_line(const EvalRecord& record);

/// Reads a file of such lines. A missing file is empty; damaged lines at the end (a torn write) are left out.
/// Throws DataError with the line number when one in the middle is damaged.
std::vector<StepRecord> read_steps(const std::filesystem::path& path);
std::vector<EvalRecord> read_evals(const std::filesystem::path& path);

/// The last complete line of a file of steps, read from its end; none without one.
std::optional<StepRecord> last_step(const std::filesystem::path& path);

/// An append-only file of records. Each line is written at once, so that others can follow the file and a
/// killed process loses nothing.
class MetricsFile {
 public:
  /// Opens `path` for a run that resumes after `loaded_step`: lines of later steps are removed in one rename,
  /// so that a crash here leaves the old or the new file. 0 is a new run: an existing file of another run is
  /// renamed to `path`.1 (.2, ... when that exists) and logged. Throws DataError when the file of a resumed
  /// run is damaged, Error when it cannot be written.
  MetricsFile(const std::filesystem::path& path, std::int64_t loaded_step);

  /// Appends a line; see AppendFile::append for a full disk.
  void append(const StepRecord& record) { file_->append(to_json_line(record) + '\n'); }
  void append(const EvalRecord& record) { file_->append(to_json_line(record) + '\n'); }

 private:
  std::optional<AppendFile> file_;
};

}  // namespace colonnade::record
