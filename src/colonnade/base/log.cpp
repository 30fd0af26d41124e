// See log.h. One write(2) per line keeps the lines of several ranks intact in a shared terminal.
#include "colonnade/base/log.h"

#include <unistd.h>

#include <atomic>
#include <string>

#include "colonnade/base/printable.h"

namespace colonnade::log {
namespace {

// Besides the progress page, the only mutable globals: the format of log lines.
std::atomic<int> rank_of_process{-1};           // NOLINT(*-non-const-global-variables)
std::atomic<Level> lowest_level{Level::kInfo};  // NOLINT(*-non-const-global-variables)

}  // namespace

void set_rank(int rank) { rank_of_process = rank; }
void set_level(Level level) { lowest_level = level; }

void write(Level level, std::string_view text) {
  if (level < lowest_level.load()) return;
  const int rank = rank_of_process.load();
  std::string line = rank >= 0 ? fmt::format("[rank {}] ", rank) : std::string();
  if (level == Level::kWarning) line += "warning: ";
  if (level == Level::kError) line += "error: ";
  line.append(printable(text)).push_back('\n');
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace colonnade::log
