// Terminal output of a run: one aligned line per step, one per evaluation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "colonnade/record/metrics.h"

namespace colonnade::record {

struct StepLineOptions {
  std::int64_t last_iteration = 0;
  std::optional<double> seconds_left;
  bool show_loss_scale = false;  ///< with fp16
  bool color = false;
};

/// " step     12/  1000 | loss 6.1234 | grad norm  0.913 | lr 3.00e-04 | 12.3k tok/s |   45.6 ms |
///   0.12 TFLOP/s | mem  1.23 GB (rank 3) | left 0:12:30"
/// on one line, without its newline; columns stay aligned from step to step. All values are global. TFLOP/s
/// is per device, followed by the share of the peak where that is known. At the end are the batch size of
/// runs in which it grows, other losses, the worst layer of layer metrics (is_on_step_line), and "skipped".
std::string step_line(const StepRecord& record, const StepLineOptions& options);

/// " validation at step 100 | loss 5.4321 | perplexity 228.6 | 3.2 s"
std::string eval_line(const EvalRecord& record, bool color);

/// Prints to standard output and flushes. Where that is closed or full the text is lost, and the run
/// continues.
void print_flushed(const std::string& text);

/// True when standard output is a terminal and NO_COLOR is not set.
bool stdout_has_color();

/// 1234 -> "1.23k", 5 significant characters at most; SI letters up to T.
std::string short_number(double value);
/// 1234567890 -> "1.23 GB" (powers of 1000).
std::string short_bytes(std::uint64_t bytes);
/// 3723 -> "1:02:03"; from 100 hours in days: "4 d 5 h".
std::string short_time(double seconds);

}  // namespace colonnade::record
