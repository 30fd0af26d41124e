// The names of --pipeline-schedule and what each of them needs.
#pragma once

#include <span>
#include <string_view>

#include "colonnade/schedule/program.h"

namespace colonnade::schedule {

struct ScheduleKind {
  enum class Shape : std::uint8_t { kLoop, kVee };

  std::string_view name;
  Shape shape;
  int chunks;            ///< virtual stages per rank that it runs; 0: any number above 1
  bool splits_backward;  ///< computes weight gradients by themselves, later than the input's
  Schedule (*make)(const config::Parallel& parallel, int chunks, int microbatches);
};

/// All of them, in the order of the help.
std::span<const ScheduleKind> schedule_kinds();

/// The kind that the settings ask for; "auto" is 1f1b for one chunk and interleaved for more. Throws
/// ConfigError where the name is none.
const ScheduleKind& schedule_kind(const config::Parallel& parallel, int chunks);

/// Whether some backward passes leave weight gradients for later: by their schedule or
/// --delay-wgrad-compute.
bool splits_backward(const config::Parallel& parallel);

/// Whether a kind runs so many virtual stages per rank.
[[nodiscard]] inline bool runs(const ScheduleKind& kind, int chunks) {
  return kind.chunks == 0 ? chunks > 1 : chunks == kind.chunks;
}

}  // namespace colonnade::schedule
