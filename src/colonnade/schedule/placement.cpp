// See placement.h.
#include "colonnade/schedule/placement.h"

#include <cstddef>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/config/parallel.h"
#include "colonnade/schedule/kinds.h"

namespace colonnade::schedule {

Placement::Placement(int ranks, std::vector<Place> places)
    : ranks_(ranks), places_(std::move(places)), numbers_(places_.size()) {
  if (places_.empty())
    throw ConfigError(
        "pipeline: it needs at least one rank and one virtual stage; got none; raise the number that is 0");
  for (int stage = 0; stage < stages(); ++stage) {
    const Place at = place(stage);
    numbers_[seat(at.rank, at.chunk)] = stage;
  }
}

Placement Placement::loop(int ranks, int chunks) {
  std::vector<Place> places;
  for (int stage = 0; stage < ranks * chunks; ++stage) places.push_back({stage % ranks, stage / ranks});
  return {ranks, std::move(places)};
}

Placement Placement::vee(int ranks) {
  std::vector<Place> places;
  for (int rank = 0; rank < ranks; ++rank) places.push_back({rank, 0});
  for (int rank = ranks; rank-- > 0;) places.push_back({rank, 1});
  return {ranks, std::move(places)};
}

Placement placement_of(const config::Parallel& parallel, int chunks) {
  const int ranks = parallel.pipeline_model_parallel_size;
  if (schedule_kind(parallel, chunks).shape == ScheduleKind::Shape::kLoop)
    return Placement::loop(ranks, chunks);
  if (chunks != 2) {
    throw ConfigError(
        fmt::format("--pipeline-schedule: {} needs two virtual stages per rank; got {}; leave virtual stages "
                    "and layout out, or give two per rank",
                    parallel.pipeline_schedule, chunks));
  }
  return Placement::vee(ranks);
}

int default_chunks(const config::Parallel& parallel) {
  return schedule_kind(parallel, 1).shape == ScheduleKind::Shape::kVee ? 2 : 1;
}

}  // namespace colonnade::schedule
