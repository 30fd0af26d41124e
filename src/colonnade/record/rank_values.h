// Values of a step by rank: phase times and memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "colonnade/config/training.h"

namespace colonnade::record {

/// Prefix of the keys of rank values in metrics.jsonl.
inline constexpr std::string_view kRankPrefix = "ranks.";
inline constexpr std::string_view kEnergyKey = "ranks.energy_j";

/// Key of metrics.jsonl and numbers: one per rank, [minimum, maximum] over the ranks, or [maximum].
///   ranks.data_ms, ranks.forward_backward_ms, ranks.communication_ms, ranks.optimizer_ms
///                            phase times (--timing-log-level 1), reduced as --timing-log-option says
///   ranks.forward_ms, ranks.backward_ms
///                            passes with their collectives (--timing-log-level 2), reduced in the same way
///   ranks.memory_bytes, ranks.peak_memory_bytes
///                            bytes of every rank now and at the peak of the step (--log-memory-interval)
///   ranks.energy_j           joules of every rank's GPU in the step (--log-energy, on steps with a log line)
using RankValue = std::pair<std::string, std::vector<double>>;

/// Values that a step reports by rank; equal on all ranks.
struct RankReport {
  bool phases = false, passes = false, memory = false, energy = false;

  /// Number of values of one rank.
  [[nodiscard]] std::size_t size() const {
    return (phases ? 4U : 0U) + (passes ? 2U : 0U) + (memory ? 2U : 0U) + (energy ? 1U : 0U);
  }
};

/// Report of step `iteration`; `has_log_line`: phase times are reported on steps with a log line.
RankReport rank_report(const config::Logging& settings, std::int64_t iteration, bool has_log_line);

/// Values of this rank for a report.
struct OwnValues {
  double data_s = 0, forward_backward_s = 0, communication_s = 0, optimizer_s = 0;
  double forward_s = 0, backward_s = 0;
  double memory_bytes = 0, peak_memory_bytes = 0;
  double energy_j = 0;

  /// Those of `report`, in the order of RankValue's keys, times in milliseconds.
  [[nodiscard]] std::vector<double> of(const RankReport& report) const;
};

/// Rank values of a report from `values`, OwnValues::of of all ranks in rank order. `option`: max, minmax or
/// all; memory and energy are always those of all ranks.
std::vector<RankValue> rank_values(const RankReport& report, const std::vector<double>& values,
                                   std::string_view option);

/// Lines for the log, each with its newline; "" without values:
///   " times of ranks (min, max) in ms | data 0.1, 0.2 | forward-backward 12.1, 13.0 | ..."
///   " memory of ranks | now 12.0 MB, 13.0 MB | peak 30.1 MB, 30.2 MB"
///   " energy of ranks in J | 512.1, 498.7"
std::string rank_lines(const std::vector<RankValue>& values, std::string_view option);

}  // namespace colonnade::record
