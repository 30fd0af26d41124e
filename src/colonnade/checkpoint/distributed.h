// Folders of torch.distributed.checkpoint (DCP): .metadata, a pickle that lists the chunks of every tensor,
// and
// *.distcp files of segments, each a file of torch.save. Megatron's torch_dist and torchtitan write them.
// Source: torch/distributed/checkpoint/metadata.py and filesystem.py.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "colonnade/checkpoint/parts.h"
#include "colonnade/checkpoint/torch_file.h"

namespace colonnade::checkpoint {

struct DistributedFolder {
  std::map<std::string, ComposedTensor> tensors;  ///< views of the mapped files
  std::map<std::string, TorchFile> objects;  ///< values that are no tensors, by key; of one element lists
};

/// Whether the folder has a .metadata.
bool is_distributed_folder(const std::filesystem::path& folder);

/// Maps all files and checks that the chunks of every tensor cover it once, have its dtype and lie in their
/// files. Reads .metadata and the frames of the segments, not the values. Throws DataError with file and
/// tensor.
DistributedFolder open_distributed(const std::filesystem::path& folder);

}  // namespace colonnade::checkpoint
