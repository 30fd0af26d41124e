// --record-memory-history: snapshots of the CUDA caching allocator with its history.
#pragma once

#include <filesystem>

#include "colonnade/config/run.h"

namespace colonnade::train {

/// Number of allocations and frees that a snapshot contains, as in Megatron.
inline constexpr std::int64_t kMemoryHistoryEntries = 100'000;

/// Starts recording allocations and frees in the CUDA caching allocator of this process. When memory runs
/// out, a snapshot is written to `out_of_memory`. Throws Error in a build without CUDA.
void start_memory_history(const std::filesystem::path& out_of_memory);
/// Writes blocks and history of the allocator to `file`, as torch.cuda.memory._dump_snapshot: a pickle for
/// pytorch.org/memory_viz. Throws Error when the file cannot be written.
void write_memory_snapshot(const std::filesystem::path& file);

/// Memory snapshots of this rank, if --record-memory-history and --profile-ranks request them. Created before
/// the model, so that its allocations are in the history. NAME.EXT of --memory-snapshot-path becomes
/// NAME_RANK.EXT, and NAME_oom_rank_RANK.EXT when memory runs out; a relative path is below the run folder.
class MemorySnapshots {
 public:
  MemorySnapshots(const config::Run& run, const std::filesystem::path& run_folder, int rank);
  /// Replaces the snapshot. A failure is a warning. Without the setting it returns at once.
  void write() const;

 private:
  std::filesystem::path file_;  ///< empty: this rank writes none
};

/// "snapshot.pickle", "_3" -> "snapshot_3.pickle".
std::filesystem::path with_suffix(const std::filesystem::path& file, const std::string& suffix);

}  // namespace colonnade::train
