// See load.h.
#include "colonnade/checkpoint/load.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <mutex>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/checkpoint/hugging_face.h"
#include "colonnade/checkpoint/manifest.h"

namespace colonnade::checkpoint {

namespace fs = std::filesystem;
using nlohmann::json;

struct CheckpointReader::State {
  fs::path folder;
  std::int64_t step = -1;
  std::map<std::string, GlobalTensor> tensors;
  std::map<std::string, FileChecksum> sums;  ///< native: expected file sizes
  json state;
  json hf_config;
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const SafetensorsFile>> files;
  std::map<std::string, ComposedTensor> composed;  ///< in place of `tensors`
  std::vector<std::string> unlisted;

  std::shared_ptr<const SafetensorsFile> file(const std::string& name) {
    const std::lock_guard lock(mutex);
    auto& open = files[name];
    if (open) return open;
    if (const auto sum = sums.find(name); sum != sums.end()) {
      std::error_code missing;
      const auto size = fs::file_size(folder / name, missing);
      if (missing || size != sum->second.bytes)
        throw DataError(fmt::format(
            "{} must have {} bytes as in the manifest; got {}; see `checkpoint verify`",
            (folder / name).string(), sum->second.bytes, missing ? missing.message() : std::to_string(size)));
    }
    return open = std::make_shared<SafetensorsFile>(folder / name);
  }

  [[nodiscard]] const GlobalTensor& tensor(const std::string& name) const {
    const auto found = tensors.find(name);
    if (found == tensors.end()) fail_missing(name);
    return found->second;
  }

  [[noreturn]] void fail_missing(const std::string& name) const {
    throw DataError(fmt::format("{} must hold the tensor '{}'; got {} others; see `checkpoint inspect`",
                                folder.string(), name, tensors.size() + composed.size()));
  }

  /// Null for a stored tensor.
  [[nodiscard]] const ComposedTensor* composed_tensor(const std::string& name) const {
    const auto found = composed.find(name);
    return found == composed.end() ? nullptr : &found->second;
  }

  at::Tensor view(const GlobalTensor& tensor, const Chunk& chunk) {
    const auto open = file(chunk.file);
    const TensorInfo& info = open->info(chunk.key);
    if (info.dtype != tensor.dtype || info.shape != chunk.box.shape)
      throw DataError(fmt::format("{}: '{}' must be {} of [{}]; got {} of [{}]; see `checkpoint verify`",
                                  (folder / chunk.file).string(), chunk.key, dtype_name(tensor.dtype),
                                  fmt::join(chunk.box.shape, ", "), dtype_name(info.dtype),
                                  fmt::join(info.shape, ", ")));
    return open->view(chunk.key);
  }
};

namespace {

void check_slice(const Slice& slice, at::ScalarType stored, const Sizes& shape, const fs::path& folder) {
  if (slice.global_shape != shape)
    throw DataError(fmt::format(
        "{}: '{}' must have the shape of this model, [{}]; got [{}]; check the model settings",
        folder.string(), slice.name, fmt::join(slice.global_shape, ", "), fmt::join(shape, ", ")));
  COL_CHECK(
      slice.data.dim() == static_cast<std::int64_t>(shape.size()) && slice.offset.size() == shape.size(),
      "read_into: a slice of '{}' must have {} dimensions; got {} and {} offsets", slice.name, shape.size(),
      slice.data.dim(), slice.offset.size());
  for (std::size_t d = 0; d < shape.size(); ++d)
    COL_CHECK(
        slice.offset[d] >= 0 && slice.offset[d] + slice.data.size(static_cast<std::int64_t>(d)) <= shape[d],
        "read_into: a slice of '{}' must lie in [{}]; got {}", slice.name, fmt::join(shape, ", "),
        to_text(slice.box()));
  const at::ScalarType wanted = slice.data.scalar_type();
  if (wanted != stored && !(at::isFloatingType(wanted) && at::isFloatingType(stored)))
    throw DataError(fmt::format("{}: '{}' must be {} or convertible to it; got {}", folder.string(),
                                slice.name, dtype_name(wanted), dtype_name(stored)));
}

}  // namespace

CheckpointReader CheckpointReader::open_native(const fs::path& step_folder) {
  Manifest manifest = read_manifest(step_folder);
  auto state = std::make_shared<State>();
  state->folder = step_folder;
  state->step = manifest.step;
  state->tensors = std::move(manifest.tensors);
  state->sums = std::move(manifest.files);
  state->state = std::move(manifest.state);
  if (state->sums.contains("config.json")) state->hf_config = read_json(step_folder / "config.json");
  return CheckpointReader(std::move(state));
}

CheckpointReader CheckpointReader::open_hugging_face(const fs::path& folder) {
  auto state = std::make_shared<State>();
  state->folder = folder;
  state->hf_config = read_json(folder / "config.json");
  Shards shards = shards_of(folder);
  state->unlisted = std::move(shards.unlisted);
  for (const auto& [file, listed] : shards.files) {
    const auto open = state->file(file);
    for (const std::string& name : listed)
      if (!open->has(name))
        throw DataError(
            fmt::format("{} must hold the tensor '{}', as in model.safetensors.index.json; got {} "
                        "others; download both again",
                        (folder / file).string(), name, open->tensors().size()));
    for (const auto& [name, info] : open->tensors()) {
      const Chunk full{file, name, {Sizes(info.shape.size(), 0), info.shape}};
      const auto [before, is_new] =
          state->tensors.emplace(name, GlobalTensor{"model", info.dtype, info.shape, {full}});
      if (!is_new)
        throw DataError(
            fmt::format("{}: every tensor must be in one shard; got '{}' in {} and {}; download the "
                        "folder again",
                        folder.string(), name, before->second.chunks[0].file, file));
    }
  }
  return CheckpointReader(std::move(state));
}

CheckpointReader CheckpointReader::of(ComposedSource source) {
  auto state = std::make_shared<State>();
  state->folder = std::move(source.folder);
  state->step = source.step;
  state->composed = std::move(source.tensors);
  state->state = std::move(source.state);
  state->hf_config = std::move(source.hf_config);
  return CheckpointReader(std::move(state));
}

CheckpointReader CheckpointReader::with_tensors(std::map<std::string, ComposedTensor> tensors) const {
  CheckpointReader other =
      of({state_->folder, state_->step, std::move(tensors), state_->state, state_->hf_config});
  other.state_->unlisted = state_->unlisted;
  return other;
}

CheckpointReader CheckpointReader::open_config(const fs::path& folder) {
  auto state = std::make_shared<State>();
  state->folder = folder;
  state->hf_config = read_json(folder / "config.json");
  return CheckpointReader(std::move(state));
}

CheckpointReader CheckpointReader::open(const fs::path& path, std::optional<std::int64_t> step,
                                        const comm::Group& world, Check check) {
  if (is_hugging_face_folder(path)) return open_hugging_face(path);
  const auto found = find_checkpoint(path, step, world, check);
  if (!found) {
    const std::string fault = unsupported_weights_fault(path);
    throw DataError(!fault.empty() ? fault
                                   : fmt::format("{} must be a run folder, a step folder or a Hugging Face "
                                                 "folder; got none of them; check the path",
                                                 path.string()));
  }
  return open_native(found->folder);
}

std::vector<std::string> CheckpointReader::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state_->tensors) names.push_back(name);
  for (const auto& [name, tensor] : state_->composed) names.push_back(name);
  return names;
}

bool CheckpointReader::has(const std::string& name) const {
  return state_->tensors.contains(name) || state_->composed.contains(name);
}

TensorInfo CheckpointReader::info(const std::string& name) const {
  if (const ComposedTensor* composed = state_->composed_tensor(name))
    return {.dtype = composed->dtype, .shape = composed->shape};
  const GlobalTensor& tensor = state_->tensor(name);
  if (tensor.chunks.size() == 1 && tensor.chunks[0].box.shape == tensor.shape)
    return state_->file(tensor.chunks[0].file)->info(tensor.chunks[0].key);
  return {.dtype = tensor.dtype, .shape = tensor.shape};
}

void CheckpointReader::read_into(const Slice& slice) const {
  if (const ComposedTensor* tensor = state_->composed_tensor(slice.name)) {
    check_slice(slice, tensor->dtype, tensor->shape, state_->folder);
    return read_box(*tensor, slice);
  }
  const GlobalTensor& tensor = state_->tensor(slice.name);
  check_slice(slice, tensor.dtype, tensor.shape, state_->folder);
  for (const Chunk& chunk : tensor.chunks)  // they cover the tensor exactly once, as open_native checks
    if (overlap(chunk.box, slice.box())) read_part(slice, {chunk.box, state_->view(tensor, chunk)});
}

at::Tensor CheckpointReader::view(const std::string& name) const {
  const GlobalTensor& tensor = state_->tensor(name);
  COL_CHECK(tensor.chunks.size() == 1 && tensor.chunks[0].box.shape == tensor.shape,
            "view: '{}' must be stored in one chunk; got {}", name, tensor.chunks.size());
  return state_->view(tensor, tensor.chunks[0]);
}

at::Tensor CheckpointReader::read(const std::string& name) const {
  const TensorInfo tensor = info(name);
  Slice full{name, tensor.shape, Sizes(tensor.shape.size(), 0),
             at::empty(tensor.shape, at::TensorOptions().dtype(tensor.dtype))};
  read_into(full);
  return full.data;
}

const json& CheckpointReader::state() const { return state_->state; }
const json& CheckpointReader::hf_config() const { return state_->hf_config; }
std::int64_t CheckpointReader::step() const { return state_->step; }
const fs::path& CheckpointReader::folder() const { return state_->folder; }
const std::vector<std::string>& CheckpointReader::unlisted_files() const { return state_->unlisted; }

}  // namespace colonnade::checkpoint
