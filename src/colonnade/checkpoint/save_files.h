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

/// Runs `step` unless `problem` already says what went wrong; a failure becomes the problem. A lost
/// rank (CommError) passes through.
template <typename Step>
void attempt(std::string& problem, const Step& step) {
  if (!problem.empty()) return;
  try {
    step();
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& e) {
    problem = e.what();
    if (problem.empty()) problem = "an error without a message";
  }
}

/// Collective: sends and receives slices in the order of plan.model and writes this rank's model file
/// into `folder`. A rank whose `problem` is set (before or while writing) still sends and receives, so
/// that the others can finish.
FileSums write_model(const SavePlan& plan, const std::vector<Slice>& slices, const comm::Group& world,
                     const std::filesystem::path& folder, std::string& problem);

/// Writes this rank's optimizer chunks into `folder`; no communication.
FileSums write_optimizer(const SavePlan& plan, const std::vector<Slice>& slices, int rank,
                         const std::filesystem::path& folder);

}  // namespace colonnade::checkpoint
