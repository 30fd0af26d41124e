// The summary at the end of a run: its loss, its files, and the commands to resume, evaluate and generate.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "colonnade/config/run.h"
#include "colonnade/launch/command_line.h"

namespace colonnade::train {

/// State of a run when it ends, after its last iteration or earlier.
struct RunEnd {
  std::int64_t iteration = 0, last_iteration = 0;
  std::optional<double> loss;                 ///< loss of this process's last step
  std::map<std::string, double> evaluations;  ///< last loss of each evaluated dataset
  std::filesystem::path folder;               ///< run folder
  std::int64_t saved = -1;                    ///< iteration of the newest checkpoint; -1: none
  bool validates = false;                     ///< the data has a validation split
};

/// Summary lines for standard output. The commands can be run unchanged in the shell and working directory
/// that started the run, and repeat no setting of the checkpoint or config.yaml. The generate command is
/// given for a GPT with a text tokenizer only.
std::string end_summary(const RunEnd& ending, const config::Run& run, const launch::CommandLine& line);

/// The lines of end_summary() with the commands that use the newest checkpoint: evaluate and generate.
std::string command_rows(const RunEnd& ending, const config::Run& run, const launch::CommandLine& line);

}  // namespace colonnade::train
