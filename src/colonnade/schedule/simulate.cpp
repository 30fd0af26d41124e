// Runs a schedule on the clock and records the timeline.
#include <algorithm>

#include "colonnade/schedule/bubble.h"
#include "colonnade/schedule/program.h"
#include "colonnade/schedule/schedule_clock.h"

namespace colonnade::schedule {

Timeline simulate(const Schedule& schedule, const ActionCosts& costs) {
  const std::vector<StageCost> equal(static_cast<std::size_t>(schedule.stages()),
                                     StageCost{costs.forward, costs.backward, costs.weight});
  std::vector<std::vector<Timeline::Span>> ranks(schedule.programs.size());
  ScheduleClock(schedule, equal, costs.transfer)
      .run([&](int rank, const Action& a, double begin, double end) {
        ranks[static_cast<std::size_t>(rank)].push_back({rank, a, begin, end});
      });
  Timeline timeline;
  for (const auto& spans : ranks) {
    if (!spans.empty())
      timeline.longest_rank_time =
          std::max(timeline.longest_rank_time, spans.back().end - spans.front().begin);
    for (const auto& span : spans) {
      timeline.makespan = std::max(timeline.makespan, span.end);
      timeline.spans.push_back(span);
    }
  }
  timeline.bubble_fraction = bubble_fraction(timeline, schedule.ranks);
  return timeline;
}

}  // namespace colonnade::schedule
