// Compares the planner's estimates with published times and gains: prints the tables of docs/benchmarks.md
// and fails if a goal is missed.
//
//   planner_exam FOLDER     FOLDER holds the hardware files of rows that have their own: benchmarks/planner
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
  const bool full = p.run.recompute.is_full();
  const bool half = p.execution.op_recompute;
  const bool part = p.run.recompute.granularity == "selective";
  return fmt::format("TP {} PP {} VPP {} MBS {}{}", l.tensor_model_parallel_size,
                     l.pipeline_model_parallel_size, std::max(1, l.num_virtual_stages_per_pipeline_rank),
                     p.run.training.micro_batch_size,
                     full   ? ", full recompute"
                     : half ? ", op recompute"
                     : part ? ", selective recompute"
                            : "");
}

double percent(double part, double whole) { return 100 * part / whole; }

void print_head() {
  fmt::print(
      "| row | layout | published s | estimated s | error | compute | tensor | context | experts | bubble | data | "
      "optimizer |\n");
  fmt::print("|---|---|---|---|---|---|---|---|---|---|---|---|\n");
}

void print_row(const Row& row, const Prediction& p) {
  const cost::StepTime& t = p.time;
  fmt::print("| {}{} | {} | {:.3f} | {:.3f} | {:+.1f}% ", row.name, row.calibrated ? " (c)" : "",
             layout_text(p), row.seconds, t.step, 100 * (t.step / row.seconds - 1));
  for (const double part :
       {t.compute, t.tensor, t.context, t.dispatch, t.bubble, t.data, t.optimizer + t.other})
    fmt::print("| {:.0f}% ", percent(part, t.step));
  fmt::print("|\n");
}

/// Prints the dense rows. Returns whether their goals are met.
bool check_dense(const std::string& folder) {
  print_head();
  std::vector<double> published, predicted;
  double errors = 0, test_errors = 0;
  int num_test = 0;
  for (const Row& row : published_rows()) {
    const Prediction p = predict(row, folder);
    const double error = std::abs(p.time.step / row.seconds - 1);
    print_row(row, p);
    published.push_back(row.seconds);
    predicted.push_back(p.time.step);
    errors += error;
    if (row.calibrated) continue;
    test_errors += error;
    ++num_test;
  }
  const double mean = errors / static_cast<double>(published.size());
  const double correlation = rank_correlation(published, predicted);
  fmt::print(
      "\nmean error {:.1f}% of {} rows, {:.1f}% of the {} not used for calibration; rank correlation {:.3f}\n",
      100 * mean, published.size(), 100 * test_errors / num_test, num_test, correlation);
  return mean <= kLargestMeanError && correlation >= kSmallestRankCorrelation;
}

void print_moe(const std::string& folder) {
  print_head();
  double errors = 0;
  const std::vector<Row> rows = published_moe_rows();
  for (const Row& row : rows) {
    const Prediction p = predict(row, folder);
    print_row(row, p);
    errors += std::abs(p.time.step / row.seconds - 1);
  }
  fmt::print("\nmean error {:.1f}% of {} MoE rows, none used for calibration\n",
             100 * errors / static_cast<double>(rows.size()), rows.size());
}

/// Prints the comparisons. Returns whether every estimated gain has the sign of the published one.
bool check_signs(const std::string& folder) {
  fmt::print("| comparison | published gain | estimated gain | sign |\n|---|---|---|---|\n");
  bool all = true;
  for (const Pair& pair : published_pairs()) {
    const double before = predict(pair.before, folder).time.tokens_per_second_per_device;
    const double gain = predict(pair.after, folder).time.tokens_per_second_per_device / before;
    const bool right = (gain > 1) == (pair.published > 1);
    fmt::print("| {} | {:.3f} | {:.3f} | {} |\n", pair.name, pair.published, gain, right ? "right" : "wrong");
    all = all && right;
  }
  return all;
}

int run(const std::string& folder) {
  const bool met = check_dense(folder);
  fmt::print("\n");
  print_moe(folder);
  fmt::print("\n");
  const bool signs = check_signs(folder);
  return met && signs ? 0 : 1;
}

}  // namespace
}  // namespace colonnade::planner

int main(int argc, char** argv) {
  return colonnade::run_as_program([&] { return colonnade::planner::run(argc > 1 ? argv[1] : "."); });
}
