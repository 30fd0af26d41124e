// See torch_file.h.
#include "colonnade/checkpoint/torch_file.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <optional>

#include "colonnade/base/error.h"
#include "colonnade/checkpoint/slice.h"
#include "colonnade/pickle/read.h"
#include "colonnade/pickle/write.h"

namespace colonnade::checkpoint {
namespace {

using pickle::Kind;
using pickle::Value;

[[noreturn]] void fail_zip(const std::string& source, std::string_view got) {
  throw DataError(fmt::format(
      "{}: a file of torch.save must be an intact zip; got {}; copy or save the file again", source, got));
}

/// Reads little-endian integers from a zip with checks of its bounds.
class ZipReader {
 public:
  ZipReader(std::span<const std::byte> bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  [[nodiscard]] std::uint64_t integer(std::uint64_t offset, std::size_t size) const {
    require(offset, size);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i) value |= static_cast<std::uint64_t>(bytes_[offset + i]) << (8 * i);
    return value;
  }
  [[nodiscard]] std::span<const std::byte> part(std::uint64_t offset, std::uint64_t size) const {
    require(offset, size);
    return bytes_.subspan(offset, size);
  }
  [[nodiscard]] std::string text(std::uint64_t offset, std::uint64_t size) const {
    const auto found = part(offset, size);
    return {reinterpret_cast<const char*>(found.data()), found.size()};
  }
  [[nodiscard]] std::uint64_t size() const { return bytes_.size(); }

 private:
  void require(std::uint64_t offset, std::uint64_t size) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset)
      fail_zip(source_, "an end in the middle of an entry");
  }
  std::span<const std::byte> bytes_;
  const std::string& source_;
};

constexpr std::uint64_t kEndRecord = 0x06054b50, kEnd64Locator = 0x07064b50, kCentralEntry = 0x02014b50,
                        kLocalEntry = 0x04034b50;
constexpr std::uint64_t kIn64Bits = 0xffffffff;

struct Directory {
  std::uint64_t entries = 0, offset = 0;
};

/// The list of entries, from the record at the end of the zip, or its 64-bit form.
Directory directory_of(const ZipReader& zip, const std::string& source) {
  constexpr std::uint64_t kEndSize = 22, kLocatorSize = 20, kLongestComment = 65535;
  const std::uint64_t size = zip.size();
  if (size < kEndSize) fail_zip(source, fmt::format("{} bytes", size));
  for (std::uint64_t back = kEndSize; back <= std::min(size, kEndSize + kLongestComment); ++back) {
    const std::uint64_t at = size - back;
    if (zip.integer(at, 4) != kEndRecord) continue;
    if (at >= kLocatorSize && zip.integer(at - kLocatorSize, 4) == kEnd64Locator) {
      const std::uint64_t end64 = zip.integer(at - kLocatorSize + 8, 8);
      return {zip.integer(end64 + 32, 8), zip.integer(end64 + 48, 8)};
    }
    return {zip.integer(at + 10, 2), zip.integer(at + 16, 4)};
  }
  fail_zip(source, "no list of entries at the end");
}

struct ZipEntry {
  std::string name;
  std::uint64_t size = 0, local_offset = 0;
};

/// Replaces sizes that need 64 bits by those of the entry's extra field.
void read_64bit_sizes(const ZipReader& zip, std::uint64_t at, std::uint64_t length, ZipEntry& entry) {
  const std::uint64_t end = at + length;
  while (at + 4 <= end) {
    const std::uint64_t id = zip.integer(at, 2), bytes = zip.integer(at + 2, 2);
    if (id == 1) {  // uncompressed size, compressed size, offset: those that do not fit in 32 bits
      std::uint64_t field = at + 4;
      if (entry.size == kIn64Bits) {
        entry.size = zip.integer(field, 8);
        field += 16;
      }
      if (entry.local_offset == kIn64Bits) entry.local_offset = zip.integer(field, 8);
      return;
    }
    at += 4 + bytes;
  }
}

/// Entries by name without the folder that all of them are in.
std::map<std::string, std::span<const std::byte>> entries_of(std::span<const std::byte> bytes,
                                                             const std::string& source) {
  constexpr std::string_view kLocalHeader = "PK\3\4";
  const ZipReader zip(bytes, source);
  if (bytes.size() < 4 || zip.text(0, 4) != kLocalHeader) {
    if (bytes.size() > 2 && zip.integer(0, 1) == 0x80)
      fail_zip(source, "the format of torch before 1.6: load it with torch and save it again");
    fail_zip(source, "another kind of file");
  }
  const Directory directory = directory_of(zip, source);
  std::map<std::string, std::span<const std::byte>> entries;
  std::uint64_t at = directory.offset;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    if (zip.integer(at, 4) != kCentralEntry) fail_zip(source, "a damaged list of entries");
    const std::uint64_t method = zip.integer(at + 10, 2), name_length = zip.integer(at + 28, 2);
    const std::uint64_t extra_length = zip.integer(at + 30, 2), comment_length = zip.integer(at + 32, 2);
    ZipEntry entry{zip.text(at + 46, name_length), zip.integer(at + 24, 4), zip.integer(at + 42, 4)};
    read_64bit_sizes(zip, at + 46 + name_length, extra_length, entry);
    if (method != 0) fail_zip(source, fmt::format("the compressed entry '{}'", entry.name));
    if (zip.integer(entry.local_offset, 4) != kLocalEntry) fail_zip(source, "an entry without its header");
    const std::uint64_t data = entry.local_offset + 30 + zip.integer(entry.local_offset + 26, 2) +
                               zip.integer(entry.local_offset + 28, 2);
    const auto slash = entry.name.find('/');
    entries[slash == std::string::npos ? entry.name : entry.name.substr(slash + 1)] =
        zip.part(data, entry.size);
    at += 46 + name_length + extra_length + comment_length;
  }
  return entries;
}

/// dtype of "torch.FloatStorage" and "torch.float32".
std::optional<at::ScalarType> dtype_of_class(const std::string& name) {
  static const std::map<std::string, at::ScalarType> kTypes = {{"torch.DoubleStorage", at::kDouble},
                                                               {"torch.FloatStorage", at::kFloat},
                                                               {"torch.HalfStorage", at::kHalf},
                                                               {"torch.BFloat16Storage", at::kBFloat16},
                                                               {"torch.LongStorage", at::kLong},
                                                               {"torch.IntStorage", at::kInt},
                                                               {"torch.ShortStorage", at::kShort},
                                                               {"torch.CharStorage", at::kChar},
                                                               {"torch.ByteStorage", at::kByte},
                                                               {"torch.BoolStorage", at::kBool},
                                                               {"torch.float64", at::kDouble},
                                                               {"torch.double", at::kDouble},
                                                               {"torch.float32", at::kFloat},
                                                               {"torch.float", at::kFloat},
                                                               {"torch.float16", at::kHalf},
                                                               {"torch.half", at::kHalf},
                                                               {"torch.bfloat16", at::kBFloat16},
                                                               {"torch.int64", at::kLong},
                                                               {"torch.long", at::kLong},
                                                               {"torch.int32", at::kInt},
                                                               {"torch.int", at::kInt},
                                                               {"torch.int16", at::kShort},
                                                               {"torch.int8", at::kChar},
                                                               {"torch.uint8", at::kByte},
                                                               {"torch.bool", at::kBool},
                                                               {"torch.float8_e4m3fn", at::kFloat8_e4m3fn},
                                                               {"torch.float8_e5m2", at::kFloat8_e5m2}};
  const auto found = kTypes.find(name);
  return found == kTypes.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace

std::optional<at::ScalarType> torch_dtype(const pickle::Value* value) {
  return value != nullptr && value->is(Kind::kClass) ? dtype_of_class(value->text) : std::nullopt;
}

TorchFile::TorchFile(MappedBytes bytes, std::string source)
    : source_(std::move(source)), map_(std::move(bytes.map)) {
  for (const auto& [name, contents] : entries_of(bytes.bytes, source_)) {
    constexpr std::string_view kStorages = "data/";
    if (name == "data.pkl")
      document_ = std::make_shared<const pickle::Document>(pickle::read(contents, source_));
    else if (name.starts_with(kStorages))
      storages_[name.substr(kStorages.size())] = contents;
    else if (name == "byteorder" && (contents.empty() || static_cast<char>(contents[0]) != 'l'))
      fail_zip(source_, "big-endian numbers");
  }
  if (!document_) fail_zip(source_, "no data.pkl");
}

TorchFile TorchFile::open(const std::filesystem::path& path) {
  auto map = std::make_shared<const MappedFile>(path);
  const auto bytes = map->bytes();
  return {{bytes, std::move(map)}, path.string()};
}

bool TorchFile::is_tensor(const Value& value) {
  return value.is_a("torch._utils._rebuild_tensor_v2") || value.is_a("torch._utils._rebuild_tensor_v3") ||
         value.is_a("torch._utils._rebuild_parameter");
}

at::Tensor TorchFile::tensor(const Value& value) const {
  const auto fail = [&](std::string_view got) {
    throw DataError(fmt::format("{}: a tensor must lie in its storage; got {}; copy or save the file again",
                                source_, got));
  };
  if (value.is_a("torch._utils._rebuild_parameter") && !value.items.empty() && is_tensor(*value.items[0]) &&
      !value.items[0]->is_a("torch._utils._rebuild_parameter"))
    return tensor(*value.items[0]);
  if (!is_tensor(value) || value.items.size() < 4) fail("a value of another kind");
  // (storage id, offset in elements, sizes, strides, requires_grad, hooks[, dtype])
  const Value& storage = *value.items[0];
  if (!storage.is(Kind::kPersistent) || !storage.state->is(Kind::kTuple) || storage.state->items.size() < 3 ||
      !storage.state->items[2]->is(Kind::kText))
    fail("a storage without its key");
  const std::vector<const Value*>& id = storage.state->items;
  const bool has_dtype = value.is_a("torch._utils._rebuild_tensor_v3") && value.items.size() > 6;
  const auto dtype = torch_dtype(has_dtype ? value.items[6] : id[1]);
  if (!dtype) fail(fmt::format("elements of {}", (has_dtype ? value.items[6] : id[1])->text));
  const auto found = storages_.find(id[2]->text);
  if (found == storages_.end()) fail("a storage that the file lacks");
  Sizes sizes, strides;
  if (!pickle::read_integers(value.items[2], sizes) || !pickle::read_integers(value.items[3], strides) ||
      sizes.size() != strides.size() || !value.items[1]->is(Kind::kInt))
    fail("a damaged shape");
  const auto bytes = found->second;
  const auto item = static_cast<std::int64_t>(c10::elementSize(*dtype));
  const std::int64_t offset = value.items[1]->integer;
  const auto elements = static_cast<std::int64_t>(bytes.size()) / item;
  // The last element's offset, with every step checked against the storage, so that nothing overflows.
  std::int64_t last = offset, numel = 1;
  bool empty = false;
  if (offset < 0 || offset > elements) fail("a tensor outside its storage");
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] < 0 || strides[d] < 0) fail("a damaged shape");
    if (sizes[d] == 0) empty = true;
    if (sizes[d] > 1 && numel > elements / sizes[d]) fail("more elements than its storage holds");
    if (sizes[d] > 1) numel *= sizes[d];
    if (sizes[d] > 1 && strides[d] > elements / (sizes[d] - 1)) fail("a tensor outside its storage");
    if (sizes[d] > 1) last += strides[d] * (sizes[d] - 1);
    if (last > elements) fail("a tensor outside its storage");
  }
  const auto options = at::TensorOptions().dtype(*dtype);
  if (empty) return at::empty(sizes, options);
  if (last >= elements) fail("a tensor outside its storage");
  return at::from_blob(
      const_cast<std::byte*>(bytes.data()) + offset * item, sizes, strides, [map = map_](void*) {}, options);
}

const char* torch_dtype_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return "float64";
    case at::kFloat:
      return "float32";
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kLong:
      return "int64";
    case at::kInt:
      return "int32";
    case at::kShort:
      return "int16";
    case at::kChar:
      return "int8";
    case at::kByte:
      return "uint8";
    case at::kBool:
      return "bool";
    default:
      throw Error(fmt::format("a torch file must have a dtype of checkpoints; got {}; convert the tensor",
                              c10::toString(dtype)));
  }
}

namespace {

const char* storage_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return "DoubleStorage";
    case at::kFloat:
      return "FloatStorage";
    case at::kHalf:
      return "HalfStorage";
    case at::kBFloat16:
      return "BFloat16Storage";
    case at::kLong:
      return "LongStorage";
    case at::kInt:
      return "IntStorage";
    case at::kShort:
      return "ShortStorage";
    case at::kChar:
      return "CharStorage";
    case at::kByte:
      return "ByteStorage";
    default:
      return "BoolStorage";
  }
}

}  // namespace

std::string tensor_pickle(const at::Tensor& tensor) {
  (void)torch_dtype_name(tensor.scalar_type());
  pickle::Writer w;
  w.global("torch._utils", "_rebuild_tensor_v2");
  w.begin_tuple();
  w.begin_tuple();
  w.text("storage"), w.global("torch", storage_name(tensor.scalar_type())), w.text("0"), w.text("cpu");
  w.integer(tensor.numel());
  w.end_tuple();
  w.persistent();
  w.integer(0);  // offset
  w.integers(tensor.sizes().vec());
  w.integers(tensor.strides().vec());
  w.boolean(false);  // requires_grad
  w.global("collections", "OrderedDict");
  w.begin_tuple(), w.end_tuple(), w.reduce();  // hooks
  w.end_tuple();
  w.reduce();
  return std::move(w).finish();
}

}  // namespace colonnade::checkpoint
