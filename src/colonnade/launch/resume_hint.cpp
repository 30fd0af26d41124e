// See resume_hint.h.
#include "colonnade/launch/resume_hint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "colonnade/base/shell.h"

namespace colonnade::launch {
namespace {

namespace fs = std::filesystem;

/// Step folder named by `latest`; "" if none.
fs::path newest_checkpoint(const fs::path& folder) {
  const fs::path checkpoints = folder / "checkpoints";
  std::string name;
  std::ifstream(checkpoints / "latest") >> name;
  std::error_code absent;
  return !name.empty() && fs::exists(checkpoints / name / "manifest.json", absent) ? checkpoints / name : "";
}

/// Number of `key` in a JSON line; "" if absent.
std::string json_number(const std::string& line, const std::string& key) {
  const std::size_t at = line.find('"' + key + "\":");
  if (at == std::string::npos) return "";
  const std::size_t begin = at + key.size() + 3;
  return line.substr(begin, line.find_first_of(",}", begin) - begin);
}

/// "2.71828 after iteration 12" from the last complete line of metrics.jsonl; "" if none.
std::string last_loss(const fs::path& folder) {
  constexpr std::streamoff kTail = 1 << 16;
  std::ifstream file(folder / "metrics.jsonl", std::ios::ate);
  file.seekg(std::max<std::streamoff>(file.tellg() - kTail, 0));
  std::string last, line;
  while (std::getline(file, line))
    if (!file.eof()) last = line;
  const std::string loss = json_number(last, "lm_loss"), iteration = json_number(last, "iteration");
  if (loss.empty() || iteration.empty()) return "";
  return fmt::format("{:.6g} after iteration {}", std::strtod(loss.c_str(), nullptr), iteration);
}

}  // namespace

void announce_run(const AnnouncedRun& run) {
  if (const char* file = std::getenv(kRunFolderVariable); file != nullptr)
    std::ofstream(file) << run.folder.string() << '\n' << run.rows;
}

AnnouncedRun parse_announcement(const std::string& text) {
  const std::size_t end = text.find('\n');
  if (end == std::string::npos) return {};
  return {text.substr(0, end), text.substr(end + 1)};
}

std::string resume_command(const CommandLine& line, const fs::path& folder,
                           const std::vector<std::string>& more) {
  Words words = line.start;
  words.insert(words.end(), {"pretrain", "--config", (folder / "config.yaml").string()});
  words.insert(words.end(), more.begin(), more.end());
  return shell_join(words);
}

std::string summary_row(const std::string& name, const std::string& text) {
  return fmt::format("  {:<12}{}\n", name, text);
}

std::string rank_loss_summary(const CommandLine& line, const AnnouncedRun& run) {
  const fs::path& folder = run.folder;
  std::error_code absent;
  if (line.verb != "pretrain" || line.start.empty() || folder.empty() ||
      !fs::exists(folder / "config.yaml", absent))
    return "";
  const fs::path checkpoint = newest_checkpoint(folder);
  const bool saved = !checkpoint.empty();
  std::string text = "stopped by the loss of a rank\n";
  if (const std::string loss = last_loss(folder); !loss.empty()) text += summary_row("loss", loss);
  text += summary_row("checkpoint",
                      saved ? checkpoint.string()
                            : fmt::format("none in {}: the run starts from the beginning", folder.string()));
  if (fs::exists(folder / "report.html", absent))
    text += summary_row("report", (folder / "report.html").string());
  text += summary_row(saved ? "resume" : "run again", resume_command(line, folder));
  return saved ? text + run.rows : text;
}

}  // namespace colonnade::launch
