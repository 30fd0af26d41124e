// Saving in the folder layout of Megatron's torch_dist: iter_*/ with the files of
// torch.distributed.checkpoint, and a tracker file. Staged and published as a native checkpoint is (save.h).
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "colonnade/checkpoint/save.h"

namespace colonnade::checkpoint {

/// One rank's share.
struct DistributedSnapshot {
  std::vector<Slice> slices;  ///< each rank writes its own; exactly one rank owns each element
  // What rank 0 writes:
  std::vector<std::string> object_keys;  ///< objects, all of the pickle `object`
  std::string object;
  std::function<void(const std::filesystem::path& folder)> write_common;  ///< common.pt
  std::string metadata;                                                   ///< metadata.json, written last
};

/// Writes run_folder/iter_XXXXXXX and then latest_checkpointed_iteration.txt. Collective over `world`, as
/// save(), with its guarantees and its save points, but for "writing". Communication: texts only, since each
/// rank writes what it owns.
SaveResult save_distributed(const std::filesystem::path& run_folder, std::int64_t iteration,
                            const DistributedSnapshot& snapshot, const comm::Group& world,
                            const SaveOptions& options = {});

}  // namespace colonnade::checkpoint
