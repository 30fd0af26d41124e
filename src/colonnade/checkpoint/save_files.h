// The files of one rank: model tensors are sent to their writer, optimizer chunks are written where they are.
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
using FileChecksums = std::map<std::string, FileChecksum>;

/// Reason why a save fails; empty while it does not.
struct Problem {
  std::string text;
  int code = kExitDone;  ///< exit code: kExitSettings for a full disk
  [[nodiscard]] bool empty() const { return text.empty(); }
};

/// Converts an exception to a problem.
Problem problem_of(const std::exception& error);

/// Runs `step` unless `problem` is already set; a failure becomes the problem. A lost rank (CommError) is
/// rethrown.
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

/// Joins the files of all ranks; `problem` becomes the first rank's, with its number, on all of them.
/// Collective.
FileChecksums agree(const comm::Group& world, Problem& problem, const FileChecksums& files,
                    std::string_view what);

/// Sends and receives slices in the order of plan.model and writes this rank's model file into `folder`. A
/// rank with a `problem` (set before or while writing) still sends and receives, so that the others can
/// finish. Collective.
FileChecksums write_model(const SavePlan& plan, const std::vector<Slice>& slices, const comm::Group& world,
                          const std::filesystem::path& folder, Problem& problem);

/// Writes this rank's optimizer chunks into `folder`; no communication.
FileChecksums write_optimizer(const SavePlan& plan, const std::vector<Slice>& slices, int rank,
                              const std::filesystem::path& folder);

}  // namespace colonnade::checkpoint
