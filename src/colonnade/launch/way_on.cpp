// See way_on.h.
#include "colonnade/launch/way_on.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>

#include "colonnade/base/shell.h"

namespace colonnade::launch {
namespace {

namespace fs = std::filesystem;

/// The step folder that `latest` names; "" where there is none.
fs::path newest_checkpoint(const fs::path& folder) {
  const fs::path checkpoints = folder / "checkpoints";
  std::string name;
  std::ifstream(checkpoints / "latest") >> name;
  std::error_code absent;
  return !name.empty() && fs::exists(checkpoints / name / "manifest.json", absent) ? checkpoints / name : "";
}

}  // namespace

void announce_run_folder(const fs::path& folder) {
  if (const char* file = std::getenv(kRunFolderFile); file != nullptr) std::ofstream(file) << folder.string();
}

std::string resume_command(const CommandLine& line, const fs::path& folder,
                           const std::vector<std::string>& more) {
  Words words = line.start;
  words.insert(words.end(), {"pretrain", "--config", (folder / "config.yaml").string()});
  words.insert(words.end(), more.begin(), more.end());
  return shell_line(words);
}

std::string summary_row(const std::string& name, const std::string& text) {
  return fmt::format("  {:<12}{}\n", name, text);
}

std::string way_on_after_loss(const CommandLine& line, const fs::path& folder) {
  std::error_code absent;
  if (line.verb != "pretrain" || line.start.empty() || folder.empty() ||
      !fs::exists(folder / "config.yaml", absent))
    return "";
  const fs::path checkpoint = newest_checkpoint(folder);
  const bool saved = !checkpoint.empty();
  std::string text = "stopped by the loss of a rank\n";
  text += summary_row("checkpoint",
                      saved ? checkpoint.string()
                            : fmt::format("none in {}: the run starts from the beginning", folder.string()));
  return text + summary_row(saved ? "resume" : "run again", resume_command(line, folder));
}

}  // namespace colonnade::launch
