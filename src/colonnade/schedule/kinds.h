// Names of --pipeline-schedule and the requirements of each schedule.
#pragma once

#include <span>
#include <string_view>

#include "colonnade/schedule/program.h"

namespace colonnade::schedule {

struct ScheduleKind {
  enum class Shape : std::uint8_t { kLoop, kVee };

  std::string_view name;
  Shape shape;
  int chunks;            ///< required virtual stages per rank; 0: any number above 1
  bool splits_backward;  ///< computes weight gradients separately, after the input gradient
  bool has_pairs;        ///< can run a forward and a backward pass as a pair (starts_pair)
  Schedule (*make)(const config::Parallel& parallel, int chunks, int microbatches);
};

/// All schedules, in the order of the help text.
std::span<const ScheduleKind> schedule_kinds();

/// Schedule that the settings select; "auto" is 1f1b for one chunk and interleaved for more. Throws
/// ConfigError for an unknown name.
const ScheduleKind& schedule_kind(const config::Parallel& parallel, int chunks);

/// Whether weight gradients are computed apart from input gradients, by the schedule or
/// --delay-wgrad-compute.
bool splits_backward(const config::Parallel& parallel);

/// Whether a schedule supports this number of virtual stages per rank.
[[nodiscard]] inline bool supports(const ScheduleKind& kind, int chunks) {
  return kind.chunks == 0 ? chunks > 1 : chunks == kind.chunks;
}

}  // namespace colonnade::schedule
