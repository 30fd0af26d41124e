// How a run goes on whose ranks are gone: its last whole checkpoint and the command to resume.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "colonnade/launch/command_line.h"

namespace colonnade::launch {

/// The variable that names the file in which rank 0 tells its launcher where the run keeps what it saves.
inline constexpr const char* kRunFolderFile = "COLONNADE_RUN_FOLDER_FILE";
/// Tells the launcher, if there is one. Nothing fails: the launcher then says less.
void announce_run_folder(const std::filesystem::path& folder);

/// The command that resumes, or without a checkpoint repeats, the run of `folder`, as a shell reads it.
std::string resume_command(const CommandLine& line, const std::filesystem::path& folder,
                           const std::vector<std::string>& more = {});

/// A line of the summary at the end of a run, which begins with what it tells.
std::string summary_row(const std::string& name, const std::string& text);

/// The summary of a launcher that has lost a rank. The newest published checkpoint is named by
/// FOLDER/checkpoints/latest. Empty for a program that is not `pretrain` and for a run that has not made its
/// folder.
std::string way_on_after_loss(const CommandLine& line, const std::filesystem::path& folder);

}  // namespace colonnade::launch
