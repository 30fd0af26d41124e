// Lifetimes of pipeline messages, derived from the schedule alone.
#pragma once

#include <cstddef>
#include <vector>

#include "colonnade/schedule/program.h"

namespace colonnade::schedule {

/// releases[j]: sends of `rank`'s program (as indices) that have completed once its action j, a receive, is
/// done, because the peer sent that message after it had received theirs. Waiting for them is then free, and
/// their memory can be released. Sends without a later message from the peer do not appear.
std::vector<std::vector<std::size_t>> releases(const Schedule& schedule, int rank);

/// By program index of a compute action: the receives to post before it, so that their messages overlap with
/// it. These are the receives up to the next compute action, except a gradient of the micro-batch whose
/// forward this is (its shape is unknown until then) and the gradients after it, which must keep their order.
/// `forward_only`: for a run of forward passes only.
std::vector<std::vector<std::size_t>> overlapped_receives(const Program& program, bool forward_only = false);

/// Maximum number of in-flight sends per rank in a forward-only run: the oldest send must complete before
/// another one starts. The smallest of 2, 4, 8, ... with which no rank deadlocks when receiving in program
/// order.
std::size_t evaluation_send_window(const Schedule& schedule);

/// releases() and overlapped_receives() of one rank.
struct RankMessages {
  std::vector<std::vector<std::size_t>> released, overlapped;
};

/// Checked schedule with the values derived from it, for planning many runs.
struct CheckedSchedule {
  Schedule schedule;
  ScheduleReport report;
  std::vector<RankMessages> messages;      ///< by rank
  std::size_t evaluation_send_window = 0;  ///< evaluation_send_window()
};
/// Throws Error if the schedule is invalid (check).
CheckedSchedule checked(Schedule schedule);

/// Bytes of a chunk's input and output; their gradients have the same size.
struct ChunkMessageSizes {
  std::int64_t input = 0, output = 0;
  bool empty = false;  ///< no blocks: the output is the input tensor
};

/// Bytes of chunk outputs and input gradients resident on `rank` besides saved activations, before each
/// action of its program and after the last one. A sent tensor stays until it is released; a tensor for
/// another chunk of this rank, until that chunk reads it.
std::vector<std::int64_t> resident_message_bytes(const CheckedSchedule& checked_schedule, int rank,
                                                 const std::vector<ChunkMessageSizes>& chunks);

}  // namespace colonnade::schedule
