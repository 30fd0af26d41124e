// The planner's estimates beside published times: prints the table of docs/benchmarks.md and fails when a
// goal of it is missed.
//
//   planner_exam FOLDER     FOLDER holds the hardware files of rows with their own: benchmarks/planner
#include <fmt/format.h>

#include <cmath>

#include "colonnade/base/program.h"
#include "published.h"

namespace colonnade::planner {
namespace {

constexpr double kLargestMeanError = 0.10;
constexpr double kSmallestRankCorrelation = 0.9;

std::string layout_text(const Prediction& p) {
  const config::Parallel& l = p.run.parallel;
  const bool full = p.run.recompute.full();
  const bool half = p.execution.half_again;
  return fmt::format("TP {} PP {} VPP {} MBS {}{}", l.tensor_model_parallel_size,
                     l.pipeline_model_parallel_size, std::max(1, l.num_virtual_stages_per_pipeline_rank),
                     p.run.training.micro_batch_size,
                     full   ? ", all done again"
                     : half ? ", half done again"
                            : "");
}

double percent(double part, double whole) { return 100 * part / whole; }

int run(const std::string& folder) {
  fmt::print(
      "| row | layout | published s | estimated s | error | compute | tensor | idle | data | optimizer |\n");
  fmt::print("|---|---|---|---|---|---|---|---|---|---|\n");
  std::vector<double> published, predicted;
  double errors = 0, unseen_errors = 0;
  int unseen = 0;
  for (const Row& row : published_rows()) {
    const Prediction p = predict(row, folder);
    const double error = p.time.step / row.seconds - 1;
    fmt::print(
        "| {}{} | {} | {:.3f} | {:.3f} | {:+.1f}% | {:.0f}% | {:.0f}% | {:.0f}% | {:.0f}% | {:.0f}% |\n",
        row.name, row.calibrated ? " (c)" : "", layout_text(p), row.seconds, p.time.step, 100 * error,
        percent(p.time.compute, p.time.step), percent(p.time.tensor, p.time.step),
        percent(p.time.bubble, p.time.step), percent(p.time.data, p.time.step),
        percent(p.time.optimizer + p.time.other, p.time.step));
    published.push_back(row.seconds);
    predicted.push_back(p.time.step);
    errors += std::abs(error);
    if (row.calibrated) continue;
    unseen_errors += std::abs(error);
    ++unseen;
  }
  const double mean = errors / static_cast<double>(published.size());
  const double correlation = rank_correlation(published, predicted);
  fmt::print(
      "\nmean error {:.1f}% of {} rows, {:.1f}% of the {} not calibrated on; rank correlation {:.3f}\n",
      100 * mean, published.size(), 100 * unseen_errors / unseen, unseen, correlation);
  return mean <= kLargestMeanError && correlation >= kSmallestRankCorrelation ? 0 : 1;
}

}  // namespace
}  // namespace colonnade::planner

int main(int argc, char** argv) {
  return colonnade::run_as_program([&] { return colonnade::planner::run(argc > 1 ? argv[1] : "."); });
}
