// Finds Megatron's checkpoints in folders. Only names and small text files are read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace colonnade::convert::megatron {

enum class Format : std::uint8_t { kTorchDist, kLegacy };

struct FoundFolder {
  Format format = Format::kTorchDist;
  std::filesystem::path folder;  ///< of the tensors
  std::filesystem::path
      description;             ///< model.yaml or run_config.yaml; "": none, the args describe the model
  std::int64_t iteration = 0;  ///< 0 for a `release`
  std::optional<std::int64_t> consumed_samples;  ///< of NeMo 2 and Megatron Bridge, whose args lack it
};

/// The checkpoint of Megatron-LM, Megatron Bridge or NeMo 2 at `path`:
///   a run folder: that of latest_checkpointed_iteration.txt, or of iteration `step`
///   an iter_* or release folder: itself
///   a NeMo 2 checkpoint (weights/ and context/), or a folder of them: that of the last step
/// Nothing where there is none. Throws DataError where the tracker or `step` names a missing one.
std::optional<FoundFolder> find_folder(const std::filesystem::path& path, std::optional<std::int64_t> step);

}  // namespace colonnade::convert::megatron
