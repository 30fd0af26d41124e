// See distributed.h.
#include "colonnade/checkpoint/distributed.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/base/printable.h"
#include "colonnade/checkpoint/manifest.h"
#include "colonnade/checkpoint/safetensors.h"
#include "colonnade/pickle/read.h"

namespace colonnade::checkpoint {
namespace {

namespace fs = std::filesystem;
using pickle::Kind;
using pickle::Value;

constexpr const char* kMetadataName = ".metadata";

/// Reads .metadata and the segments that it lists.
class DistributedReader {
 public:
  explicit DistributedReader(const fs::path& folder) : folder_(folder) {}

  DistributedFolder read() {
    const MappedFile file(folder_ / kMetadataName);
    const pickle::Document metadata = pickle::read(file.bytes(), (folder_ / kMetadataName).string());
    read_tensors(*metadata.root);
    read_segments(*metadata.root);
    for (auto& [name, tensor] : result_.tensors) require_covered(name, tensor);
    return std::move(result_);
  }

 private:
  [[noreturn]] void fail(const std::string& name, std::string_view rule, std::string_view got) const {
    throw DataError(fmt::format("{}: '{}' {}; got {}; copy the folder again, or take another checkpoint",
                                folder_.string(), printable(name), rule, got));
  }

  static const Value& member(const Value& object, const char* name, const std::string& of) {
    const Value* found = pickle::attribute(&object, name);
    if (found == nullptr)
      throw DataError(fmt::format("{} must have '{}'; got none; copy the file again", of, name));
    return *found;
  }

  /// dtypes and shapes; properties are a tuple whose first element is the dtype, or a dict.
  void read_tensors(const Value& metadata) {
    const Value& listed = member(metadata, "state_dict_metadata", (folder_ / kMetadataName).string());
    for (std::size_t i = 0; i + 1 < listed.items.size(); i += 2) {
      const Value &key = *listed.items[i], &entry = *listed.items[i + 1];
      if (!key.is(Kind::kText)) continue;
      const Value* size = pickle::attribute(&entry, "size");
      if (size == nullptr) continue;  // an object
      ComposedTensor& tensor = result_.tensors[key.text];
      const Value& properties = member(entry, "properties", key.text);
      const Value* state = properties.state;
      const Value* dtype = state != nullptr && state->is(Kind::kTuple) && !state->items.empty()
                               ? state->items[0]
                               : pickle::attribute(&properties, "dtype");
      const auto type = torch_dtype(dtype);
      if (!type) fail(key.text, "must have a dtype of torch", dtype == nullptr ? "none" : dtype->text);
      tensor.dtype = *type;
      if (!pickle::read_integers(size, tensor.shape) ||
          std::ranges::any_of(tensor.shape, [](std::int64_t n) { return n < 0; }))
        fail(key.text, "must have a shape", "something else");
    }
  }

  const MappedBytes& file(const std::string& name) {
    auto& open = files_[name];
    if (!open.map) {
      if (!is_plain_name(name))
        throw DataError(
            fmt::format("{}: a segment must be in a file of the folder; got '{}'; take another checkpoint",
                        folder_.string(), printable(name)));
      open.map = std::make_shared<const MappedFile>(folder_ / name);
      open.bytes = open.map->bytes();
    }
    return open;
  }

  MappedBytes segment(const std::string& key, const Value& info) {
    const Value &path = member(info, "relative_path", key), &offset = member(info, "offset", key),
                &length = member(info, "length", key);
    if (!path.is(Kind::kText) || !offset.is(Kind::kInt) || !length.is(Kind::kInt))
      fail(key, "must have a place in a file", "something else");
    const MappedBytes& whole = file(path.text);
    const auto size = static_cast<std::int64_t>(whole.bytes.size());
    if (offset.integer < 0 || offset.integer > size || length.integer < 0 ||
        length.integer > size - offset.integer)
      fail(key, fmt::format("must lie in {}, which has {} bytes", path.text, size),
           fmt::format("bytes {} to {}", offset.integer, offset.integer + length.integer));
    return {whole.bytes.subspan(static_cast<std::size_t>(offset.integer),
                                static_cast<std::size_t>(length.integer)),
            whole.map};
  }

  void read_segments(const Value& metadata) {
    const Value& stored = member(metadata, "storage_data", (folder_ / kMetadataName).string());
    for (std::size_t i = 0; i + 1 < stored.items.size(); i += 2) {
      const Value& index = *stored.items[i];
      const Value& key = member(index, "fqn", (folder_ / kMetadataName).string());
      if (!key.is(Kind::kText)) continue;
      TorchFile contents(segment(key.text, *stored.items[i + 1]),
                         fmt::format("{}: '{}'", folder_.string(), key.text));
      const auto tensor = result_.tensors.find(key.text);
      if (tensor == result_.tensors.end())
        result_.objects.insert_or_assign(key.text, std::move(contents));
      else
        add_chunk(key.text, tensor->second, pickle::attribute(&index, "offset"), contents);
    }
  }

  void add_chunk(const std::string& key, ComposedTensor& tensor, const Value* offset,
                 const TorchFile& contents) {
    Part part{.box = {}, .data = contents.tensor(contents.root())};
    part.box.shape = part.data.sizes().vec();
    if (offset == nullptr || offset->is(Kind::kNone))
      part.box.offset = Sizes(tensor.shape.size(), 0);
    else if (!pickle::read_integers(offset, part.box.offset))
      fail(key, "must have chunks with offsets", "something else");
    if (part.box.offset.size() != tensor.shape.size() || part.box.shape.size() != tensor.shape.size())
      fail(key, fmt::format("must have chunks of {} dimensions", tensor.shape.size()), to_text(part.box));
    if (part.data.scalar_type() != tensor.dtype)
      fail(key, fmt::format("must have chunks of {}", dtype_name(tensor.dtype)),
           dtype_name(part.data.scalar_type()));
    tensor.parts.push_back(std::move(part));
  }

  void require_covered(const std::string& name, const ComposedTensor& tensor) const {
    std::vector<Box> boxes;
    for (const Part& part : tensor.parts) boxes.push_back(part.box);
    if (const auto problem = coverage_problem(tensor.shape, boxes))
      fail(name, "must be covered once by its chunks", *problem);
  }

  const fs::path& folder_;
  DistributedFolder result_;
  std::map<std::string, MappedBytes> files_;
};

}  // namespace

bool is_distributed_folder(const fs::path& folder) {
  std::error_code unreadable;
  return fs::exists(folder / kMetadataName, unreadable);
}

DistributedFolder open_distributed(const fs::path& folder) { return DistributedReader(folder).read(); }

}  // namespace colonnade::checkpoint
