// The safetensors header: dtype names, a strict single-pass parser, and checks of the layout. The file is
// untrusted.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "colonnade/base/error.h"
#include "colonnade/base/file_kind.h"
#include "colonnade/checkpoint/safetensors.h"

namespace colonnade::checkpoint {
namespace {

using nlohmann::json;

struct Dtype {
  std::string_view name;
  at::ScalarType type;
};
constexpr std::array kDtypes{
    Dtype{"F64", at::kDouble},
    Dtype{"F32", at::kFloat},
    Dtype{"F16", at::kHalf},
    Dtype{"BF16", at::kBFloat16},
    Dtype{"I64", at::kLong},
    Dtype{"I32", at::kInt},
    Dtype{"I16", at::kShort},
    Dtype{"I8", at::kChar},
    Dtype{"U64", at::kUInt64},
    Dtype{"U32", at::kUInt32},
    Dtype{"U16", at::kUInt16},
    Dtype{"U8", at::kByte},
    Dtype{"BOOL", at::kBool},
    Dtype{"F8_E4M3", at::kFloat8_e4m3fn},
    Dtype{"F8_E5M2", at::kFloat8_e5m2},
    Dtype{"F8_E8M0", at::kFloat8_e8m0fnu},
    Dtype{"F8_E4M3FNUZ", at::kFloat8_e4m3fnuz},
    Dtype{"F8_E5M2FNUZ", at::kFloat8_e5m2fnuz},
    Dtype{"C64", at::kComplexFloat},
};

constexpr std::uint64_t kMaxHeader = 100'000'000;
constexpr std::size_t kMaxDimensions = 64;

/// Parsed values of one tensor; offsets are still from the start of the data.
struct Entry {
  std::string name;
  std::optional<at::ScalarType> dtype;
  std::optional<std::vector<std::int64_t>> shape;
  std::optional<std::vector<std::uint64_t>> offsets;
};

/// SAX handler. The grammar has three levels: the header, an entry, a list of numbers.
class HeaderParser final : public nlohmann::json_sax<json> {
 public:
  std::vector<Entry> entries;
  Metadata metadata;
  std::string problem;

  bool start_object(std::size_t) override {
    if (list_ || depth_ == 2) return reject("an unexpected object");
    if (++depth_ == 2 && !in_metadata_) entries.push_back({.name = name_});
    return true;
  }
  bool end_object() override {
    if (depth_-- == 2) {
      if (!in_metadata_ && !(entries.back().dtype && entries.back().shape && entries.back().offsets))
        return reject(fmt::format("tensor '{}' must have dtype, shape and data_offsets", name_));
      in_metadata_ = false;
    }
    return true;
  }
  bool key(string_t& text) override {
    if (depth_ == 1) {
      name_ = text;
      in_metadata_ = text == "__metadata__";
      if (in_metadata_ && std::exchange(seen_metadata_, true)) return reject("a duplicate __metadata__");
    }
    key_ = text;
    return true;
  }
  bool string(string_t& text) override {
    if (depth_ != 2 || list_) return reject("an unexpected string");
    if (in_metadata_) {
      return metadata.emplace(key_, text).second || reject(fmt::format("duplicate metadata '{}'", key_));
    }
    if (key_ != "dtype" || entries.back().dtype)
      return reject(fmt::format("tensor '{}' has an unknown or duplicate string '{}'", name_, key_));
    entries.back().dtype = dtype_of(text);
    return entries.back().dtype || reject(fmt::format("tensor '{}' has the unknown dtype '{}'", name_, text));
  }
  bool start_array(std::size_t) override {
    const bool known = key_ == "shape" || key_ == "data_offsets";
    if (depth_ != 2 || list_ || in_metadata_ || !known) return reject("an unexpected list");
    Entry& entry = entries.back();
    if (key_ == "shape" ? entry.shape.has_value() : entry.offsets.has_value())
      return reject(fmt::format("tensor '{}' has two lists '{}'", name_, key_));
    (key_ == "shape") ? void(entry.shape.emplace()) : void(entry.offsets.emplace());
    return list_ = true;
  }
  bool end_array() override {
    list_ = false;
    return key_ == "shape" || entries.back().offsets->size() == 2 ||
           reject(fmt::format("tensor '{}' must have two data_offsets", name_));
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (!list_) return reject("an unexpected number");
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return reject(fmt::format("tensor '{}' has a number above 2^63", name_));
    Entry& entry = entries.back();
    if (key_ == "shape") {
      entry.shape->push_back(static_cast<std::int64_t>(value));
      return entry.shape->size() <= kMaxDimensions ||
             reject(fmt::format("tensor '{}' has too many dimensions", name_));
    }
    entry.offsets->push_back(value);
    return entry.offsets->size() <= 2 || reject(fmt::format("tensor '{}' must have two data_offsets", name_));
  }
  bool null() override { return reject("a null"); }
  bool boolean(bool) override { return reject("a true or false"); }
  bool number_integer(number_integer_t) override { return reject("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return reject("a number that is not an integer");
  }
  bool binary(binary_t&) override { return reject("binary data"); }
  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    return reject(fmt::format("invalid JSON at byte {}", position));
  }

 private:
  bool reject(std::string why) {
    problem = std::move(why);
    return false;
  }
  int depth_ = 0;
  bool list_ = false;
  bool in_metadata_ = false;
  bool seen_metadata_ = false;
  std::string name_;
  std::string key_;
};

/// Bytes of a tensor with `shape`; nothing when they do not fit in 64 bits.
std::optional<std::uint64_t> bytes_of(const std::vector<std::int64_t>& shape, at::ScalarType dtype) {
  std::uint64_t bytes = c10::elementSize(dtype);
  for (const std::int64_t size : shape)
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes)) return std::nullopt;
  return bytes;
}

/// The broken rule of the data section, with `entries` sorted by offset; empty when there is none.
std::string layout_problem(const std::vector<Entry>& entries, std::uint64_t data_bytes) {
  std::uint64_t at = 0;
  for (const Entry& entry : entries) {
    const std::uint64_t begin = (*entry.offsets)[0];
    const std::uint64_t end = (*entry.offsets)[1];
    if (end < begin || end > data_bytes)
      return fmt::format("tensor '{}' must lie inside {} bytes of data; got [{}, {})", entry.name, data_bytes,
                         begin, end);
    if (bytes_of(*entry.shape, *entry.dtype) != end - begin)
      return fmt::format("tensor '{}' must have the bytes of its shape; got {} bytes for {} x [{}]",
                         entry.name, end - begin, dtype_name(*entry.dtype), fmt::join(*entry.shape, ", "));
    if (begin != at)
      return fmt::format("tensor '{}' must begin where the one before ends, at {}; got {}", entry.name, at,
                         begin);
    at = end;
  }
  if (at != data_bytes) return fmt::format("the tensors must cover {} bytes of data; got {}", data_bytes, at);
  return {};
}

/// Kind of another file in place of a safetensors file; "" where unknown.
std::string_view kind_in_place(std::span<const std::byte> bytes) {
  constexpr std::size_t kLooked = 1024;
  const std::string_view begin(reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), kLooked));
  const std::string_view kind = file_kind(begin);
  return kind == "a safetensors file" ? "" : kind;
}

}  // namespace

std::string_view dtype_name(at::ScalarType type) {
  for (const Dtype& known : kDtypes)
    if (known.type == type) return known.name;
  throw Error(fmt::format("safetensors: the dtype must exist in the format; got {}; convert the tensor first",
                          c10::toString(type)));
}

std::optional<at::ScalarType> dtype_of(std::string_view name) {
  for (const Dtype& known : kDtypes)
    if (known.name == name) return known.type;
  return std::nullopt;
}

SafetensorsHeader parse_safetensors(std::span<const std::byte> bytes, const std::filesystem::path& path) {
  const auto reject = [&](const std::string& why) {
    return DataError(fmt::format("{} must be a valid safetensors file; got {}; write or copy it again",
                                 path.string(), why));
  };
  const std::string_view kind = kind_in_place(bytes);
  if (!kind.empty()) throw reject(std::string(kind));
  std::uint64_t length = 0;
  if (bytes.size() < sizeof length) throw reject(fmt::format("{} bytes", bytes.size()));
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > kMaxHeader)
    throw reject(fmt::format("a header of {} bytes, above the limit of {}", length, kMaxHeader));
  if (length > bytes.size() - sizeof length)
    throw reject(fmt::format("a header of {} bytes in a file of {}", length, bytes.size()));
  const char* text = reinterpret_cast<const char*>(bytes.data()) + sizeof length;
  if (length == 0 || text[0] != '{') throw reject("a header that does not begin with '{'");
  HeaderParser parser;
  if (!json::sax_parse(text, text + length, &parser)) throw reject(parser.problem);

  std::sort(parser.entries.begin(), parser.entries.end(),
            [](const Entry& a, const Entry& b) { return a.offsets < b.offsets; });
  const std::uint64_t data = sizeof length + length;
  if (const std::string problem = layout_problem(parser.entries, bytes.size() - data); !problem.empty())
    throw reject(problem);
  SafetensorsHeader header{.metadata = std::move(parser.metadata)};
  for (Entry& entry : parser.entries) {
    const std::uint64_t begin = (*entry.offsets)[0];
    TensorInfo info{*entry.dtype, std::move(*entry.shape), path.filename().string(), data + begin,
                    (*entry.offsets)[1] - begin};
    if (!header.tensors.emplace(entry.name, std::move(info)).second)
      throw reject(fmt::format("duplicate tensor '{}'", entry.name));
  }
  return header;
}

}  // namespace colonnade::checkpoint
