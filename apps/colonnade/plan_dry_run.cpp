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

nlohmann::json to_json(const job::DryRun& one) {
  return {{"rank", one.rank},
          {"pipeline_rank", one.pipeline_rank},
          {"ranks_alike", one.represented_ranks},
          {"num_parameters", one.num_parameters},
          {"parameter_bytes", one.parameters},
          {"gradient_bytes", one.gradients},
          {"optimizer_bytes", one.optimizer},
          {"peak_bytes", one.peak},
          {"optimizer_peak_bytes", one.optimizer_peak},
          {"calls", one.calls.size()}};
}

cost::Table table_of(const config::Run& run, const std::vector<job::DryRun>& all) {
  const auto plans = job::planned_memory_of(run, all);
  cost::Table table{{"rank", "ranks alike", "stage", "parameters", "planned", "peak", "planned", "difference",
                     "comm calls"}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const job::DryRun& one = all[i];
    const cost::StageMemory& plan = plans[i];
    const auto peak = static_cast<double>(one.peak), planned = static_cast<double>(plan.peak());
    table.push_back({std::to_string(one.rank),
                     one.represented_ranks > 0 ? std::to_string(one.represented_ranks) : "-",
                     std::to_string(one.pipeline_rank), std::to_string(one.num_parameters),
                     std::to_string(plan.num_parameters), cost::bytes_text(peak), cost::bytes_text(planned),
                     fmt::format("{:+.2f} %", 100 * (peak / planned - 1)), std::to_string(one.calls.size())});
  }
  return table;
}

/// Ranks that the built ones represent; empty if all ranks or a single one were built.
std::string alike_text(const config::Run& run, const std::vector<job::DryRun>& runs) {
  const auto world = static_cast<std::size_t>(run.parallel.world_size);
  if (runs.size() == 1 || runs.size() == world) return "";
  return fmt::format(
      "they represent all {} ranks: one rank of each class, with the size of the class, and, marked -, the first "
      "and the last member of every kind of group\n",
      world);
}

}  // namespace

void check_dry_run(config::Parsed& parsed) {
  const bool all = parsed.extras.contains("--all"), one = parsed.extras.contains("--rank");
  if (!parsed.extras.contains("--dry-run")) {
    if (all || one)
      parsed.faults.push_back(fmt::format("{} requires --dry-run; got none; add --dry-run, or remove {}",
                                          all ? "--all" : "--rank", all ? "--all" : "--rank"));
    return;
  }
  if (all == one)
    parsed.faults.push_back(fmt::format(
        "--dry-run requires one of --rank and --all; got {}; write --rank R for one rank, or --all for one "
        "of each class",
        all ? "both" : "neither"));
  const int world = parsed.run.parallel.world_size, rank = extra_number(parsed, "--rank", 0);
  if (rank < 0 || rank >= world)
    parsed.faults.push_back(fmt::format("--rank must be a rank of the world; got {} of {}; write 0 to {}",
                                        rank, world, world - 1));
}

void dry_run_ranks(const config::Parsed& parsed, nlohmann::json& json) {
  if (!parsed.extras.contains("--dry-run")) return;
  const config::Run& run = parsed.run;
  const std::vector<job::DryRun> runs =
      parsed.extras.contains("--all") ? job::dry_run_all(run)
                                      : std::vector{job::dry_run(run, std::stoi(extra(parsed, "--rank")))};
  fmt::print("\ndry run: one training step of the real code on each of {} ranks, on meta tensors\n{}{}",
             runs.size(), alike_text(run, runs), cost::routing_assumption(run));
  fmt::print("{}", cost::table_text(table_of(run, runs)));
  for (const job::DryRun& one : runs) json["dry_run"].push_back(to_json(one));

  std::vector<std::string> faults = job::plan_mismatches(run, runs);
  if (runs.size() > 1)
    for (std::string& fault : job::collective_mismatches(runs)) faults.push_back(std::move(fault));
  if (!faults.empty()) throw Error(fmt::format("{}", fmt::join(faults, "\n")));
  if (runs.size() > 1)
    fmt::print("every send matches its receive, and collectives match on all their ranks\n");
}

}  // namespace colonnade::app
