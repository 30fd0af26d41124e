// See bubble.h.
#include "colonnade/schedule/bubble.h"

namespace colonnade::schedule {

double bubble_fraction(const Timeline& timeline, int ranks) {
  if (timeline.makespan <= 0) return 0;
  double busy = 0;
  for (const Timeline::Span& span : timeline.spans) busy += span.end - span.begin;
  return 1 - busy / (timeline.makespan * ranks);
}

}  // namespace colonnade::schedule
