// See load.h.
#include "colonnade/checkpoint/load.h"

#include <sys/mman.h>

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

namespace {

at::Tensor viewed(const View& view, at::Tensor stored) {
  if (view.index) stored = stored.select(0, *view.index);
  return view.rows ? stored.narrow(0, view.first_row, *view.rows) : stored;
}

Sizes shape_of(const View& view, Sizes stored) {
  if (view.index) stored.erase(stored.begin());
  if (view.rows) stored[0] = *view.rows;
  return stored;
}

}  // namespace

struct CheckpointReader::State {
  fs::path folder;
  std::int64_t step = -1;
  std::map<std::string, GlobalTensor> tensors;
  std::map<std::string, FileChecksum> sums;  ///< native: expected file sizes
  json state;
  json hf_config;
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const SafetensorsFile>> files;
  std::map<std::string, View> views;  ///< tensors that are views of stored ones
  std::map<std::string, ComputedTensor> computed;
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
    if (found == tensors.end())
      throw DataError(fmt::format("{} must hold the tensor '{}'; got {} others; see `checkpoint inspect`",
                                  folder.string(), name, tensors.size()));
    return found->second;
  }

  at::Tensor view(const std::string& name, const GlobalTensor& tensor, const Chunk& chunk) {
    const auto open = file(chunk.file);
    if (const auto found = views.find(name); found != views.end())
      return viewed(found->second, open->view(chunk.key));
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

/// Asks the kernel to load the pages of `view` at once instead of by single page faults.
void prefetch(const at::Tensor& view) {
  constexpr std::uintptr_t kPage = 4096;
  if (!view.is_contiguous() || view.nbytes() < 64 * kPage) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(view.const_data_ptr()) / kPage * kPage;
  const auto end = reinterpret_cast<std::uintptr_t>(view.const_data_ptr()) + view.nbytes();
#ifdef MADV_POPULATE_READ
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_READ);
#else
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
#endif
}

void check_slice(const Slice& slice, const GlobalTensor& tensor, const fs::path& folder) {
  if (slice.global_shape != tensor.shape)
    throw DataError(fmt::format(
        "{}: '{}' must have the shape of this model, [{}]; got [{}]; check the model settings",
        folder.string(), slice.name, fmt::join(slice.global_shape, ", "), fmt::join(tensor.shape, ", ")));
  COL_CHECK(slice.data.dim() == static_cast<std::int64_t>(tensor.shape.size()) &&
                slice.offset.size() == tensor.shape.size(),
            "read_into: a slice of '{}' must have {} dimensions; got {} and {} offsets", slice.name,
            tensor.shape.size(), slice.data.dim(), slice.offset.size());
  for (std::size_t d = 0; d < tensor.shape.size(); ++d)
    COL_CHECK(slice.offset[d] >= 0 &&
                  slice.offset[d] + slice.data.size(static_cast<std::int64_t>(d)) <= tensor.shape[d],
              "read_into: a slice of '{}' must lie in [{}]; got {}", slice.name,
              fmt::join(tensor.shape, ", "), to_text(slice.box()));
  const at::ScalarType wanted = slice.data.scalar_type();
  if (wanted != tensor.dtype && !(at::isFloatingType(wanted) && at::isFloatingType(tensor.dtype)))
    throw DataError(fmt::format("{}: '{}' must be {} or convertible to it; got {}", folder.string(),
                                slice.name, dtype_name(wanted), dtype_name(tensor.dtype)));
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

CheckpointReader CheckpointReader::with_views(const std::map<std::string, View>& views) const {
  auto state = std::make_shared<State>();
  state->folder = state_->folder;
  state->hf_config = state_->hf_config;
  state->unlisted = state_->unlisted;
  {
    const std::lock_guard lock(state_->mutex);
    state->files = state_->files;
  }
  for (const auto& [name, view] : views) {
    const GlobalTensor& stored = state_->tensor(view.stored);
    COL_CHECK(stored.chunks.size() == 1 && stored.chunks[0].box.shape == stored.shape,
              "with_views: '{}' must be stored in one chunk; got {} chunks", view.stored,
              stored.chunks.size());
    const Sizes shape = shape_of(view, stored.shape);
    GlobalTensor& tensor = state->tensors[name] = stored;
    tensor.shape = shape;
    tensor.chunks[0].box = {Sizes(shape.size(), 0), shape};
    state->views[name] = view;
  }
  return CheckpointReader(std::move(state));
}

CheckpointReader CheckpointReader::with_computed(std::map<std::string, ComputedTensor> computed) const {
  auto state = std::make_shared<State>();
  state->folder = state_->folder;
  state->hf_config = state_->hf_config;
  state->unlisted = state_->unlisted;
  state->tensors = state_->tensors;
  state->views = state_->views;
  {
    const std::lock_guard lock(state_->mutex);
    state->files = state_->files;
  }
  for (const auto& [name, tensor] : computed)
    state->tensors[name] = {"model", tensor.dtype, tensor.shape, {}};
  state->computed = std::move(computed);
  return CheckpointReader(std::move(state));
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
  return names;
}

bool CheckpointReader::has(const std::string& name) const { return state_->tensors.contains(name); }

TensorInfo CheckpointReader::info(const std::string& name) const {
  const GlobalTensor& tensor = state_->tensor(name);
  const bool is_one_chunk = tensor.chunks.size() == 1 && tensor.chunks[0].box.shape == tensor.shape;
  if (is_one_chunk && !state_->views.contains(name))
    return state_->file(tensor.chunks[0].file)->info(tensor.chunks[0].key);
  return {.dtype = tensor.dtype, .shape = tensor.shape};
}

void CheckpointReader::read_into(const Slice& slice) const {
  const GlobalTensor& tensor = state_->tensor(slice.name);
  check_slice(slice, tensor, state_->folder);
  const Box wanted = slice.box();
  if (const auto found = state_->computed.find(slice.name); found != state_->computed.end()) {
    Slice target = slice;
    target.data.copy_(found->second.read(wanted));
    return;
  }
  for (const Chunk& chunk : tensor.chunks) {  // they cover the tensor exactly once, as open_native checks
    const std::optional<Box> common = overlap(chunk.box, wanted);
    if (!common) continue;
    const Slice stored{slice.name, tensor.shape, chunk.box.offset, state_->view(slice.name, tensor, chunk)};
    const at::Tensor stored_part = subview(stored, *common);
    prefetch(stored_part);
    subview(slice, *common).copy_(stored_part);
  }
}

at::Tensor CheckpointReader::read(const std::string& name) const {
  const GlobalTensor& tensor = state_->tensor(name);
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
