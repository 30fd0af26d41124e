// How a run goes on whose ranks are gone: its last whole checkpoint and the command to resume.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "colonnade/launch/command_line.h"

namespace colonnade::launch {

/// The variable that names the file in which rank 0 reports to its launcher where the run keeps its
/// checkpoints.
inline constexpr const char* kRunFolderFile = "COLONNADE_RUN_FOLDER_FILE";

/// A run as its launcher knows it.
struct AnnouncedRun {
  std::filesystem::path folder;  ///< "": not known
  std::string rows;              ///< of the summary of a run with a checkpoint: evaluate and generate
};
/// Reports to the launcher, if there is one. Nothing fails: the launcher then prints less.
void announce_run(const AnnouncedRun& run);
/// The run of a text that announce_run() wrote.
AnnouncedRun read_announced(const std::string& text);

/// The command that resumes, or without a checkpoint repeats, the run of `folder`, as a shell reads it.
std::string resume_command(const CommandLine& line, const std::filesystem::path& folder,
                           const std::vector<std::string>& more = {});

/// A line of the summary at the end of a run, which begins with what it tells.
std::string summary_row(const std::string& name, const std::string& text);

/// The summary of a launcher that has lost a rank: the loss of the last line of FOLDER/metrics.jsonl, the
/// newest published checkpoint, which FOLDER/checkpoints/latest names, and the commands that go on from it.
/// Empty for a program that is not `pretrain` and for a run that has not made its folder.
std::string way_on_after_loss(const CommandLine& line, const AnnouncedRun& run);

}  // namespace colonnade::launch
