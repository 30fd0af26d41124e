// See memory.h.
#include "colonnade/record/memory.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "colonnade/record/step_line.h"

namespace colonnade::record {

std::string_view memory_phase_name(MemoryPhase phase) {
  constexpr std::array<std::string_view, kMemoryPhases> kNames{"start-up", "forward-backward", "optimizer",
                                                               "evaluate", "checkpoint"};
  return kNames[static_cast<std::size_t>(phase)];
}

void MemoryPeaks::raise(MemoryPhase phase, std::uint64_t peak) {
  std::uint64_t& known = bytes[static_cast<std::size_t>(phase)];
  known = std::max(known, peak);
}

std::uint64_t MemoryPeaks::largest() const { return *std::max_element(bytes.begin(), bytes.end()); }

MemoryPeaks planned_peaks(const cost::StageMemory& plan) {
  const auto bytes = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  MemoryPeaks peaks;
  peaks.raise(MemoryPhase::kStartUp, bytes(plan.start_up()));
  peaks.raise(MemoryPhase::kForwardBackward, bytes(plan.peak()));
  peaks.raise(MemoryPhase::kOptimizer, bytes(plan.resident()));
  peaks.raise(MemoryPhase::kEvaluate, bytes(plan.evaluation_peak()));
  return peaks;
}

std::vector<MemoryPeaks> gather_peaks(const MemoryPeaks& mine, const comm::Group& world,
                                      const at::TensorOptions& options) {
  constexpr auto kCount = static_cast<std::int64_t>(kMemoryPhases);
  const at::Tensor host = at::empty({kCount}, at::kLong);
  std::copy(mine.bytes.begin(), mine.bytes.end(), host.mutable_data_ptr<std::int64_t>());
  const at::Tensor all = at::empty({kCount * world.size()}, options.dtype(at::kLong));
  world.all_gather(all, host.to(options.device()), "memory by phase").wait();
  const at::Tensor gathered = all.cpu();
  const auto* numbers = gathered.const_data_ptr<std::int64_t>();
  std::vector<MemoryPeaks> peaks(static_cast<std::size_t>(world.size()));
  for (MemoryPeaks& one : peaks)
    for (std::uint64_t& bytes : one.bytes) bytes = static_cast<std::uint64_t>(*numbers++);
  return peaks;
}

std::string memory_line(const std::vector<MemoryPeaks>& measured, const std::vector<MemoryPeaks>& planned) {
  const auto fullest =
      std::max_element(measured.begin(), measured.end(),
                       [](const MemoryPeaks& a, const MemoryPeaks& b) { return a.largest() < b.largest(); });
  const auto rank = static_cast<std::size_t>(fullest - measured.begin());
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < kMemoryPhases; ++i) {
    if (fullest->bytes[i] == 0) continue;
    parts.push_back(
        fmt::format("{} {}", memory_phase_name(static_cast<MemoryPhase>(i)), short_bytes(fullest->bytes[i])));
    if (planned[rank].bytes[i] > 0)
      parts.back() += fmt::format(" (planned {})", short_bytes(planned[rank].bytes[i]));
  }
  return fmt::format("memory: rank {} has the highest peak; {}", rank, fmt::join(parts, ", "));
}

}  // namespace colonnade::record
