// When a sent tensor has surely arrived, read off the schedule alone.
#pragma once

#include <cstddef>
#include <vector>

#include "colonnade/schedule/program.h"

namespace colonnade::schedule {

/// release[j]: the sends of `rank`'s program (as indices) that have arrived once its action j, a
/// receive, is done: the peer sent that letter after it had received theirs. Waiting for them then
/// costs nothing, and their memory can go. Sends that nothing answers appear nowhere.
std::vector<std::vector<std::size_t>> releases(const Schedule& schedule, int rank);

/// By place in a program: the receives that may be open while what stands there is computed, so that their
/// messages travel beside it. They are those up to the next computation, but for a gradient of the
/// micro-batch whose forward pass stands there, whose shape is not known yet, and the gradients behind it:
/// values of one kind are received in the order in which they were sent. `forward_only`: of a run that takes
/// forward passes alone.
std::vector<std::vector<std::size_t>> receives_beside(const Program& program, bool forward_only = false);

/// How many sent activations of a rank may be on their way in a run that takes forward passes alone: before
/// the next one leaves, the oldest must have arrived. The fewest of 2, 4, 8... with which no rank waits for
/// one that waits for it, where each receives in the order of its program.
std::size_t messages_of_evaluations(const Schedule& schedule);

/// Of one rank: its releases() and receives_beside().
struct Messages {
  std::vector<std::vector<std::size_t>> released, beside;
};

/// A schedule with all that follows from it alone, for those who plan many runs with it.
struct SoundSchedule {
  Schedule schedule;
  ScheduleReport report;
  std::vector<Messages> messages;       ///< by rank
  std::size_t evaluation_messages = 0;  ///< messages_of_evaluations
};
/// Throws Error unless the schedule is sound (check).
SoundSchedule sound(Schedule schedule);

/// Bytes of what a chunk is given and gives, and of their gradients.
struct ChunkMessages {
  std::int64_t input = 0, output = 0;
  bool empty = false;  ///< it has no blocks and so hands on the input that it keeps
};

/// By place in `rank`'s program, before what stands there, and behind the last: bytes of outputs and
/// gradients of inputs that lie on the rank beside what its passes keep. A sent one stays until it is
/// released; what the next or the last chunk of this rank reads, until that does.
std::vector<std::int64_t> held_messages(const SoundSchedule& sound, int rank,
                                        const std::vector<ChunkMessages>& chunks);

}  // namespace colonnade::schedule
