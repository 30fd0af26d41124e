// Loading: reads any box of any tensor of a native checkpoint or a Hugging Face folder, whatever layout wrote
// it, and of tensors composed of the parts of another format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/checkpoint/parts.h"
#include "colonnade/checkpoint/safetensors.h"
#include "colonnade/checkpoint/slice.h"
#include "colonnade/comm/group.h"

namespace colonnade::checkpoint {

/// How thoroughly a checkpoint is checked for damage.
enum class Check { kSizes, kChecksums };

/// What a reader of composed tensors presents besides them.
struct ComposedSource {
  std::filesystem::path folder;
  std::int64_t step = -1;
  std::map<std::string, ComposedTensor> tensors;
  nlohmann::json state;      ///< Snapshot::state; null for weights alone
  nlohmann::json hf_config;  ///< null when there is none
};

/// Reader of a checkpoint's tensors. A value: copies share the open files. Thread-safe.
class CheckpointReader {
 public:
  /// Opens a step folder (docs/formats/checkpoint.md). Checks the manifest and that its chunks cover every
  /// tensor once; files are opened at the first read. Throws DataError.
  static CheckpointReader open_native(const std::filesystem::path& step_folder);
  /// Opens config.json with model.safetensors, or with the shards in model.safetensors.index.json and all
  /// their tensors. Names are those of the files. Throws DataError.
  static CheckpointReader open_hugging_face(const std::filesystem::path& folder);
  /// Opens the config.json of a Hugging Face folder without tensors, for plans. Throws DataError.
  static CheckpointReader open_config(const std::filesystem::path& folder);
  /// Opens a Hugging Face folder, or the result of find_checkpoint(path, step, world, check). Collective over
  /// `world`. Throws DataError when there is neither.
  static CheckpointReader open(const std::filesystem::path& path,
                               std::optional<std::int64_t> step = std::nullopt, const comm::Group& world = {},
                               Check check = Check::kChecksums);

  /// Presents tensors of another format as a checkpoint.
  static CheckpointReader of(ComposedSource source);
  /// The same folder with other tensors.
  [[nodiscard]] CheckpointReader with_tensors(std::map<std::string, ComposedTensor> tensors) const;

  [[nodiscard]] std::vector<std::string> names() const;  ///< ascending
  [[nodiscard]] bool has(const std::string& name) const;
  /// dtype and global shape; file, offset and bytes only for a tensor in one chunk. Throws DataError for an
  /// unknown name.
  [[nodiscard]] TensorInfo info(const std::string& name) const;

  /// Fills slice.data with its box, whatever the chunks in the files are. Floating-point dtypes are converted
  /// into each other; any other dtype difference is an error. Throws DataError when the tensor is missing,
  /// has another global shape or its file is damaged; slice.data is then undefined.
  void read_into(const Slice& slice) const;
  /// The stored tensor without a copy: a view of its file, of a tensor in one chunk.
  [[nodiscard]] at::Tensor view(const std::string& name) const;
  /// The full tensor in its own dtype, in new memory.
  [[nodiscard]] at::Tensor read(const std::string& name) const;

  [[nodiscard]] const nlohmann::json& state() const;      ///< Snapshot::state; null for Hugging Face
  [[nodiscard]] const nlohmann::json& hf_config() const;  ///< null when there is none
  [[nodiscard]] std::int64_t step() const;                ///< -1 for Hugging Face
  [[nodiscard]] const std::filesystem::path& folder() const;
  /// Shards of a Hugging Face folder that are not in its index.
  [[nodiscard]] const std::vector<std::string>& unlisted_files() const;

 private:
  struct State;
  explicit CheckpointReader(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

struct FoundCheckpoint {
  std::filesystem::path folder;  ///< the step folder
  std::int64_t step = 0;
  std::vector<std::string> skipped;  ///< damage of newer or preferred checkpoints
};

/// The checkpoint to load from `path`: a run folder, its `checkpoints` folder or a step folder. In a run
/// folder it is the one of `latest`, or `step`; when that is damaged, the newest intact one, with a warning
/// and an entry in `skipped` for every damaged one. Nothing when `path` does not exist or holds no
/// checkpoint. Throws DataError when checkpoints exist but none is intact, when a step folder or `step` was
/// requested and is missing or damaged, and when the folder is not readable.
///
/// Collective over `world`: each rank checks its share of the files, and all ranks get the same result.
std::optional<FoundCheckpoint> find_checkpoint(const std::filesystem::path& path,
                                               std::optional<std::int64_t> step = std::nullopt,
                                               const comm::Group& world = {},
                                               Check check = Check::kChecksums);

}  // namespace colonnade::checkpoint
