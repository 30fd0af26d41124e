// See placement.h.
#include "colonnade/schedule/placement.h"

#include <cstddef>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/config/parallel.h"
#include "colonnade/schedule/kinds.h"

namespace colonnade::schedule {

Placement::Placement(int ranks, std::vector<StageLocation> locations)
    : ranks_(ranks), locations_(std::move(locations)), stage_of_slot_(locations_.size()) {
  if (locations_.empty())
    throw ConfigError(
        "pipeline must have at least one rank and one virtual stage; got none; raise the number that is 0");
  for (int stage = 0; stage < stages(); ++stage) {
    const auto [rank, chunk] = location(stage);
    stage_of_slot_[slot(rank, chunk)] = stage;
  }
}

Placement Placement::loop(int ranks, int chunks) {
  std::vector<StageLocation> locations;
  for (int stage = 0; stage < ranks * chunks; ++stage) locations.push_back({stage % ranks, stage / ranks});
  return {ranks, std::move(locations)};
}

Placement Placement::vee(int ranks) {
  std::vector<StageLocation> locations;
  for (int rank = 0; rank < ranks; ++rank) locations.push_back({rank, 0});
  for (int rank = ranks; rank-- > 0;) locations.push_back({rank, 1});
  return {ranks, std::move(locations)};
}

Placement placement_of(const config::Parallel& parallel, int chunks) {
  const int ranks = parallel.pipeline_model_parallel_size;
  if (schedule_kind(parallel, chunks).shape == ScheduleKind::Shape::kLoop)
    return Placement::loop(ranks, chunks);
  if (chunks != 2) {
    throw ConfigError(fmt::format(
        "--pipeline-schedule {} requires two virtual stages per rank; got {}; remove the settings of "
        "virtual stages and layout, or set two per rank",
        parallel.pipeline_schedule, chunks));
  }
  return Placement::vee(ranks);
}

int default_chunks(const config::Parallel& parallel) {
  return schedule_kind(parallel, 1).shape == ScheduleKind::Shape::kVee ? 2 : 1;
}

}  // namespace colonnade::schedule
