// Conversion of checkpoints between formats, on one process and without a GPU. Streams: memory holds one
// tensor per worker. Every tensor of the model is read once and written once, or nothing is published.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/checkpoint/load.h"

namespace colonnade::job {

enum class CheckpointFormat : std::uint8_t { kNative, kHuggingFace, kMegatron };

struct ConversionProgress {
  std::uint64_t bytes = 0, total_bytes = 0;
  double seconds = 0;
};

struct ConversionOptions {
  CheckpointFormat from = CheckpointFormat::kHuggingFace, to = CheckpointFormat::kNative;
  std::filesystem::path source, target;
  std::optional<std::int64_t> step;           ///< of the source; nothing: its newest
  std::optional<at::ScalarType> dtype;        ///< of the model's tensors; nothing: as in the source
  std::uint64_t shard_bytes = 5'000'000'000;  ///< at most, of a file, unless one tensor is larger
  int workers = 1;                            ///< threads, each of which writes a file
  bool with_optimizer = true;
  std::function<void(const ConversionProgress&)> on_progress;  ///< about once a second, from one thread
  /// For tests: called before a file is written; an exception interrupts the conversion.
  std::function<void(const std::string& file)> on_file;
};

struct ConversionReport {
  std::size_t source_tensors = 0, used_tensors = 0;  ///< of the source, each of these used once
  std::size_t target_tensors = 0;                    ///< all filled once
  std::size_t files = 0, kept_files = 0;  ///< written; kept_files of them by an earlier, interrupted call
  std::uint64_t bytes = 0;
  double seconds = 0;
  std::vector<std::string> notes;  ///< what was not carried over
};

/// Converts options.source into options.target, which must not exist or be an empty folder:
///   Hugging Face   config.json, *.safetensors with an index, and the tokenizer's files
///   native         a run folder with one checkpoint, with optimizer states where the source has them
///   Megatron       latest_checkpointed_iteration.txt and iter_* or, without optimizer states and iteration,
///   release
///                  (torch_dist, names of Transformer Engine, optimizer states fully_reshardable)
/// Files are written into TARGET.converting, which becomes TARGET by one rename; an interrupted call leaves
/// it, and the same call continues with the files that are missing. Throws DataError where the source is
/// damaged or its tensors are not those of its model, ConfigError where the target's format cannot express
/// the model or space runs out.
ConversionReport convert(const ConversionOptions& options);

}  // namespace colonnade::job
