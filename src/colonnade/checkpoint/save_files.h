// The files of one rank: model tensors travel to their writer, optimizer chunks stay where they are.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "colonnade/base/error.h"
#include "colonnade/checkpoint/checksum.h"
#include "colonnade/checkpoint/save_plan.h"
#include "colonnade/comm/group.h"

namespace colonnade::checkpoint {

/// Sizes and checksums of the files that a rank has written, by name.
using FileSums = std::map<std::string, FileSum>;

/// Why a save cannot go on; empty while it can.
struct Problem {
  std::string text;
  int code = kExitDone;  ///< the exit code that it is worth: kExitSettings where there is no room
  [[nodiscard]] bool empty() const { return text.empty(); }
};

/// The problem that an exception is.
Problem problem_of(const std::exception& error);

/// Runs `step` unless `problem` already says what went wrong; a failure becomes the problem. A lost
/// rank (CommError) passes through.
template <typename Step>
void attempt(Problem& problem, const Step& step) {
  if (!problem.empty()) return;
  try {
    step();
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& error) {
    problem = problem_of(error);
  }
}

/// Collective: sends and receives slices in the order of plan.model and writes this rank's model file
/// into `folder`. A rank whose `problem` is set (before or while writing) still sends and receives, so
/// that the others can finish.
FileSums write_model(const SavePlan& plan, const std::vector<Slice>& slices, const comm::Group& world,
                     const std::filesystem::path& folder, Problem& problem);

/// Writes this rank's optimizer chunks into `folder`; no communication.
FileSums write_optimizer(const SavePlan& plan, const std::vector<Slice>& slices, int rank,
                         const std::filesystem::path& folder);

}  // namespace colonnade::checkpoint
