// Summary of a run that lost a rank: its last complete checkpoint and the command to resume.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "colonnade/launch/command_line.h"

namespace colonnade::launch {

/// Environment variable with the file in which rank 0 reports the run folder to its launcher.
inline constexpr const char* kRunFolderVariable = "COLONNADE_RUN_FOLDER_FILE";

/// Run information that rank 0 passes to its launcher.
struct AnnouncedRun {
  std::filesystem::path folder;  ///< "" if unknown
  std::string rows;              ///< summary rows for a run with a checkpoint: evaluate and generate
};
/// Reports to the launcher, if any. Failures are ignored: the launcher then prints less.
void announce_run(const AnnouncedRun& run);
/// Inverse of announce_run().
AnnouncedRun parse_announcement(const std::string& text);

/// Shell command that resumes the run in `folder`, or repeats it if there is no checkpoint.
std::string resume_command(const CommandLine& line, const std::filesystem::path& folder,
                           const std::vector<std::string>& more = {});

/// One row, name and text, of the summary at the end of a run.
std::string summary_row(const std::string& name, const std::string& text);

/// Summary printed by the launcher after a lost rank: the loss in the last line of FOLDER/metrics.jsonl, the
/// newest checkpoint named by FOLDER/checkpoints/latest, and the commands that continue from it. Empty for
/// programs other than `pretrain` and for runs that have not created their folder.
std::string rank_loss_summary(const CommandLine& line, const AnnouncedRun& run);

}  // namespace colonnade::launch
