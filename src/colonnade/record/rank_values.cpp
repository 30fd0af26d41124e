// See rank_values.h.
#include "colonnade/record/rank_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "colonnade/record/step_line.h"

namespace colonnade::record {
namespace {

/// A value of OwnValues: key after kRankPrefix, name in the log, and the report that contains it.
struct RankColumn {
  const char* key;
  const char* name;
  bool RankReport::*is_in;
  double OwnValues::*value;

  [[nodiscard]] bool is_memory() const { return is_in == &RankReport::memory; }
  [[nodiscard]] bool is_energy() const { return is_in == &RankReport::energy; }
  [[nodiscard]] bool is_time() const { return !is_memory() && !is_energy(); }
};

constexpr RankColumn kColumns[] = {
    {"data_ms", "data", &RankReport::phases, &OwnValues::data_s},
    {"forward_backward_ms", "forward-backward", &RankReport::phases, &OwnValues::forward_backward_s},
    {"communication_ms", "communication", &RankReport::phases, &OwnValues::communication_s},
    {"optimizer_ms", "optimizer", &RankReport::phases, &OwnValues::optimizer_s},
    {"forward_ms", "forward", &RankReport::passes, &OwnValues::forward_s},
    {"backward_ms", "backward", &RankReport::passes, &OwnValues::backward_s},
    {"memory_bytes", "now", &RankReport::memory, &OwnValues::memory_bytes},
    {"peak_memory_bytes", "peak", &RankReport::memory, &OwnValues::peak_memory_bytes},
    {"energy_j", "", &RankReport::energy, &OwnValues::energy_j},
};

std::vector<double> reduced(std::vector<double> values, std::string_view option) {
  if (option == "all") return values;
  const auto [low, high] = std::ranges::minmax(values);
  return option == "max" ? std::vector{high} : std::vector{low, high};
}

}  // namespace

RankReport rank_report(const config::Logging& settings, std::int64_t iteration, bool has_log_line) {
  const auto& interval = settings.log_memory_interval;
  return {.phases = has_log_line && settings.timing_log_level >= 1,
          .passes = has_log_line && settings.timing_log_level >= 2,
          .memory = interval && iteration % *interval == 0,
          .energy = has_log_line && settings.log_energy};
}

std::vector<double> OwnValues::of(const RankReport& report) const {
  std::vector<double> values;
  for (const RankColumn& column : kColumns)
    if (report.*column.is_in) values.push_back(this->*column.value * (column.is_time() ? 1e3 : 1));
  return values;
}

std::vector<RankValue> rank_values(const RankReport& report, const std::vector<double>& values,
                                   std::string_view option) {
  std::vector<RankValue> all;
  std::size_t first = 0;
  for (const RankColumn& column : kColumns) {
    if (!(report.*column.is_in)) continue;
    std::vector<double> by_rank;
    for (std::size_t i = first; i < values.size(); i += report.size()) by_rank.push_back(values[i]);
    ++first;
    all.emplace_back(fmt::format("{}{}", kRankPrefix, column.key),
                     reduced(std::move(by_rank), column.is_time() ? option : "all"));
  }
  return all;
}

std::string rank_lines(const std::vector<RankValue>& values, std::string_view option) {
  std::string times, memory, energy;
  for (const RankColumn& column : kColumns) {
    const auto found =
        std::ranges::find(values, fmt::format("{}{}", kRankPrefix, column.key), &RankValue::first);
    if (found == values.end()) continue;
    std::vector<std::string> texts;
    for (const double value : found->second)
      texts.push_back(column.is_memory() ? short_bytes(static_cast<std::uint64_t>(value))
                                         : fmt::format("{:.1f}", value));
    const std::string all = fmt::format("{}", fmt::join(texts, ", "));
    if (column.is_energy())
      energy = fmt::format(" energy of ranks in J | {}\n", all);
    else
      (column.is_memory() ? memory : times) += fmt::format(" | {} {}", column.name, all);
  }
  if (!times.empty())
    times = fmt::format(" times of ranks{} in ms{}\n",
                        option == "all"   ? ""
                        : option == "max" ? " (max)"
                                          : " (min, max)",
                        times);
  if (!memory.empty()) memory = fmt::format(" memory of ranks{}\n", memory);
  return times + memory + energy;
}

}  // namespace colonnade::record
