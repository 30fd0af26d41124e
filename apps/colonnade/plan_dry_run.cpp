// See plan_dry_run.h.
#include "plan_dry_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "colonnade/base/error.h"
#include "colonnade/cost/describe.h"
#include "colonnade/job/dry_run.h"
#include "extras.h"

namespace colonnade::app {
namespace {

nlohmann::json to_json(const job::DryRun& seen) {
  return {{"rank", seen.rank},
          {"pipeline_rank", seen.pipeline_rank},
          {"ranks_alike", seen.alike},
          {"num_parameters", seen.num_parameters},
          {"parameter_bytes", seen.parameters},
          {"gradient_bytes", seen.gradients},
          {"optimizer_bytes", seen.optimizer},
          {"peak_bytes", seen.peak},
          {"optimizer_peak_bytes", seen.optimizer_peak},
          {"calls", seen.calls.size()}};
}

cost::Table table_of(const config::Run& run, const std::vector<job::DryRun>& all) {
  const auto plans = job::plans_of(run, all);
  cost::Table table{
      {"rank", "alike", "stage", "parameters", "planned", "peak", "planned", "apart", "calls of groups"}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const job::DryRun& seen = all[i];
    const cost::StageMemory& plan = plans[i];
    const auto peak = static_cast<double>(seen.peak), planned = static_cast<double>(plan.peak());
    table.push_back({std::to_string(seen.rank), seen.alike > 0 ? std::to_string(seen.alike) : "-",
                     std::to_string(seen.pipeline_rank), std::to_string(seen.num_parameters),
                     std::to_string(plan.num_parameters), cost::bytes_text(peak), cost::bytes_text(planned),
                     fmt::format("{:+.2f} %", 100 * (peak / planned - 1)),
                     std::to_string(seen.calls.size())});
  }
  return table;
}

/// What the ranks that were looked at stand for, where they are not all.
std::string alike_text(const config::Run& run, const std::vector<job::DryRun>& seen) {
  const auto world = static_cast<std::size_t>(run.parallel.world_size);
  if (seen.size() == 1 || seen.size() == world) return "";
  return fmt::format(
      "they stand for all {}: one of each kind of ranks whose places give them the same, `alike` of them, and, "
      "with -, the first and the last member of every kind of group\n",
      world);
}

/// In a batch of equal sequences nothing else depends on data.
std::string assumed_text(const config::Run& run) {
  const config::Moe& moe = run.model.moe;
  if (moe.num_experts == 0) return "";
  if (moe.assumed_imbalance == 1) return "assumed: every expert gets the same number of tokens\n";
  return fmt::format(
      "assumed: in every layer the first expert rank gets {:g} times the mean number of tokens' rows, the others "
      "equal parts of the rest\n",
      moe.assumed_imbalance);
}

}  // namespace

void check_dry_run(config::Parsed& parsed) {
  const bool all = parsed.extras.contains("--all"), one = parsed.extras.contains("--rank");
  if (!parsed.extras.contains("--dry-run")) {
    if (all || one)
      parsed.faults.push_back(
          fmt::format("{}: says which ranks --dry-run builds; got no --dry-run; add it, or leave {} out",
                      all ? "--all" : "--rank", all ? "--all" : "--rank"));
    return;
  }
  if (all == one)
    parsed.faults.push_back(fmt::format(
        "--dry-run must be told which ranks to build; got {}; write --rank R for one or --all for one "
        "of each kind",
        all ? "--rank and --all" : "neither --rank nor --all"));
  const int world = parsed.run.parallel.world_size, rank = extra_number(parsed, "--rank", 0);
  if (rank < 0 || rank >= world)
    parsed.faults.push_back(fmt::format("--rank must be a rank of the world; got {} of {}; write 0 to {}",
                                        rank, world, world - 1));
}

void dry_run_ranks(const config::Parsed& parsed, nlohmann::json& json) {
  if (!parsed.extras.contains("--dry-run")) return;
  const config::Run& run = parsed.run;
  const std::vector<job::DryRun> seen =
      parsed.extras.contains("--all") ? job::dry_run_all(run)
                                      : std::vector{job::dry_run(run, std::stoi(extra(parsed, "--rank")))};
  fmt::print(
      "\ndry run: one training step of the real code on each of {} ranks, on tensors without memory\n{}{}",
      seen.size(), alike_text(run, seen), assumed_text(run));
  fmt::print("{}", cost::table_text(table_of(run, seen)));
  for (const job::DryRun& one : seen) json["dry_run"].push_back(to_json(one));

  std::vector<std::string> faults = job::broken_promises(run, seen);
  if (seen.size() > 1)
    for (std::string& fault : job::broken_talk(seen)) faults.push_back(std::move(fault));
  if (!faults.empty()) throw Error(fmt::format("{}", fmt::join(faults, "\n")));
  if (seen.size() > 1)
    fmt::print("every send meets its receive, and every collective has the same calls on all its ranks\n");
}

}  // namespace colonnade::app
