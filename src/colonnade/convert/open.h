// Opens checkpoints of any supported format, detected by the contents of the folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "colonnade/checkpoint/load.h"
#include "colonnade/config/model.h"

namespace colonnade::convert {

/// The checkpoint of a run at `path`: a native one (checkpoint::find_checkpoint) or Megatron's
/// (megatron/folder.h); where both are there, the one of the later step. Nothing where there is none.
/// `model`: see megatron::open. Collective over `world`. Throws as find_checkpoint and megatron::open.
std::optional<checkpoint::CheckpointReader> find_run(const std::filesystem::path& path,
                                                     std::optional<std::int64_t> step = std::nullopt,
                                                     const comm::Group& world = {},
                                                     checkpoint::Check check = checkpoint::Check::kChecksums,
                                                     const config::Model* model = nullptr);

/// open_hugging_face() for a Hugging Face folder, else find_run(). Collective over `world`. Throws DataError
/// where there is neither.
checkpoint::CheckpointReader open_weights(const std::filesystem::path& path,
                                          std::optional<std::int64_t> step = std::nullopt,
                                          const comm::Group& world = {},
                                          checkpoint::Check check = checkpoint::Check::kChecksums,
                                          const config::Model* model = nullptr);

}  // namespace colonnade::convert
