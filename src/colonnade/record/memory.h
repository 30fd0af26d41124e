// Peak memory of every rank by phase of a run, measured and planned.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/comm/group.h"
#include "colonnade/cost/memory.h"

namespace colonnade::record {

enum class MemoryPhase { kStartUp, kForwardBackward, kOptimizer, kEvaluate, kCheckpoint };
inline constexpr std::size_t kMemoryPhases = 5;

/// "start-up", "forward-backward", "optimizer", "evaluate", "checkpoint".
std::string_view memory_phase_name(MemoryPhase phase);

/// Peak bytes in the tensor allocator by phase; 0 where the phase has not run or nothing is planned.
struct MemoryPeaks {
  std::array<std::uint64_t, kMemoryPhases> bytes{};

  std::uint64_t operator[](MemoryPhase phase) const { return bytes[static_cast<std::size_t>(phase)]; }
  /// Raises the peak of a phase to `peak` where that is larger.
  void raise(MemoryPhase phase, std::uint64_t peak);
  /// Maximum over all phases.
  [[nodiscard]] std::uint64_t largest() const;
  friend bool operator==(const MemoryPeaks&, const MemoryPeaks&) = default;
};

/// Planned peaks of a rank's stage; checkpoints are not planned.
MemoryPeaks planned_peaks(const cost::StageMemory& plan);

/// All ranks' peaks in rank order, gathered on the device of `options`. Collective over `world`.
std::vector<MemoryPeaks> gather_peaks(const MemoryPeaks& mine, const comm::Group& world,
                                      const at::TensorOptions& options);

/// One line about the rank with the highest peak: "memory: rank 1 has the highest peak; start-up 12.0 MB
/// (planned 12.0 MB), forward-backward ...". Phases that have not run are left out.
std::string memory_line(const std::vector<MemoryPeaks>& measured, const std::vector<MemoryPeaks>& planned);

}  // namespace colonnade::record
