// Loading: any box of any tensor of a native checkpoint or a Hugging Face folder, in any layout.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/checkpoint/safetensors.h"
#include "colonnade/checkpoint/slice.h"
#include "colonnade/comm/group.h"

namespace colonnade::checkpoint {

/// How much is read to decide that a checkpoint is whole.
enum class Check { kSizes, kChecksums };

/// A part of a stored tensor that is read as a tensor of its own.
struct View {
  std::string stored;
  std::optional<std::int64_t> index;  ///< of dimension 0, which the view has not
  std::int64_t first_row = 0;         ///< of the view's dimension 0
  std::optional<std::int64_t> rows;   ///< of the view's dimension 0; nothing: all
};

/// Tensors that can be read. A value: copies share the open files. Reading is thread safe.
class Source {
 public:
  /// A step folder (docs/formats/checkpoint.md). Checks the manifest and that its chunks cover every
  /// tensor once; files are opened when first read. Throws DataError.
  static Source open_native(const std::filesystem::path& step_folder);
  /// config.json and model.safetensors, or the shards that model.safetensors.index.json names with all that
  /// they hold. Names are those of the files. Throws DataError.
  static Source open_hugging_face(const std::filesystem::path& folder);
  /// The config.json of a Hugging Face folder and no tensors, for plans. Throws DataError.
  static Source open_config(const std::filesystem::path& folder);
  /// A Hugging Face folder as it is, or what find_checkpoint(path, step, world, check) finds. Collective
  /// over `world`. Throws DataError when there is none.
  static Source open(const std::filesystem::path& path, std::optional<std::int64_t> step = std::nullopt,
                     const comm::Group& world = {}, Check check = Check::kChecksums);

  /// The same files with other names: each tensor is a part of one of this source's, which must be stored
  /// whole.
  [[nodiscard]] Source with_views(const std::map<std::string, View>& views) const;

  [[nodiscard]] std::vector<std::string> names() const;  ///< ascending
  [[nodiscard]] bool has(const std::string& name) const;
  /// dtype and global shape; file, offset and bytes only of a tensor that lies whole in one file.
  /// Throws DataError for an unknown name.
  [[nodiscard]] TensorInfo info(const std::string& name) const;

  /// Fills slice.data with its box, whatever the chunks in the files are. Floating-point types are
  /// converted into each other; any other difference of type is refused. Throws DataError when the
  /// tensor is missing, has another global shape or its file is damaged; slice.data is then undefined.
  void read_into(const Slice& slice) const;
  /// The whole tensor in its own type, in new memory.
  [[nodiscard]] at::Tensor read(const std::string& name) const;

  [[nodiscard]] const nlohmann::json& state() const;      ///< Snapshot::state; null for Hugging Face
  [[nodiscard]] const nlohmann::json& hf_config() const;  ///< null when there is none
  [[nodiscard]] std::int64_t step() const;                ///< -1 for Hugging Face
  [[nodiscard]] const std::filesystem::path& folder() const;
  /// Of a Hugging Face folder: shards that its index does not name.
  [[nodiscard]] const std::vector<std::string>& unlisted_files() const;

 private:
  struct State;
  explicit Source(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

struct Found {
  std::filesystem::path folder;  ///< the step folder
  std::int64_t step = 0;
  std::vector<std::string> skipped;  ///< newer or asked-for checkpoints that are damaged, and why
};

/// The checkpoint to load from `path`: a run folder, its `checkpoints` folder or a step folder.
/// In a run folder it is the one that `latest` names, or `step`; when that is damaged, the newest whole
/// one, and every damaged one is named by a warning and in `skipped`. Nothing when `path` does not exist
/// or holds no checkpoint. Throws DataError when checkpoints exist but none is whole, when a step folder or
/// `step` was asked for and it is missing or damaged, and when this process may not look into the folder.
///
/// Collective over `world`: each rank checks its share of the files, all ranks get the same answer.
std::optional<Found> find_checkpoint(const std::filesystem::path& path,
                                     std::optional<std::int64_t> step = std::nullopt,
                                     const comm::Group& world = {}, Check check = Check::kChecksums);

}  // namespace colonnade::checkpoint
