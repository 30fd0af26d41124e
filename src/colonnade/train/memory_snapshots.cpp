// See memory_snapshots.h.
#include "colonnade/train/memory_snapshots.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "colonnade/base/files.h"
#include "colonnade/base/log.h"

namespace colonnade::train {

std::filesystem::path with_suffix(const std::filesystem::path& file, const std::string& suffix) {
  return file.parent_path() / (file.stem().string() + suffix + file.extension().string());
}

MemorySnapshots::MemorySnapshots(const config::Run& run, const std::filesystem::path& run_folder, int rank) {
  const config::Profiling& p = run.profiling;
  const bool is_listed =
      p.profile_ranks.empty() || std::ranges::find(p.profile_ranks, rank) != p.profile_ranks.end();
  if (!p.record_memory_history || !is_listed) return;
  const std::filesystem::path path =
      run_folder / p.memory_snapshot_path;  // an absolute path replaces the folder
  create_folders(path.parent_path());
  start_memory_history(with_suffix(path, fmt::format("_oom_rank_{}", rank)));
  file_ = with_suffix(path, fmt::format("_{}", rank));
  log::info("memory history is recorded; snapshots for pytorch.org/memory_viz: {}", file_.string());
}

void MemorySnapshots::write() const {
  if (file_.empty()) return;
  try {
    write_memory_snapshot(file_);
  } catch (const std::exception& e) {
    log::warning("--record-memory-history: {}; the run continues", e.what());
  }
}

}  // namespace colonnade::train
