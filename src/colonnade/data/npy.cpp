// See npy.h. The header is a Python dictionary of three keys; only the form NumPy writes is read.
#include "colonnade/data/npy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <optional>
#include <string>

namespace colonnade::data {
namespace {

constexpr std::string_view kMagic("\x93NUMPY\x01\x00", 8);
constexpr std::array<std::string_view, 4> kDescriptions{"<i2", "<i4", "<i8", "<u4"};
constexpr std::array<std::int64_t, 4> kItemSizes{2, 4, 8, 4};

/// The text after `'key': ` in the header; empty when the key is missing.
std::string_view after_key(std::string_view header, std::string_view key) {
  const std::size_t at = header.find(key);
  return at == std::string_view::npos ? std::string_view() : header.substr(at + key.size());
}

/// "(3,)" or "(3, 2)" as rows and columns.
std::optional<std::pair<std::int64_t, std::int64_t>> parse_shape(std::string_view text) {
  std::array<std::int64_t, 2> sizes{0, 1};
  std::size_t count = 0;
  if (text.empty() || text[0] != '(') return std::nullopt;
  text.remove_prefix(1);
  while (!text.empty() && text[0] != ')') {
    if (text[0] == ' ' || text[0] == ',') {
      text.remove_prefix(1);
      continue;
    }
    if (count == sizes.size()) return std::nullopt;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), sizes[count]);
    if (status != std::errc() || sizes[count] < 0) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    ++count;
  }
  if (text.empty() || count == 0) return std::nullopt;
  return std::pair{sizes[0], sizes[1]};
}

/// Everything in front of the numbers, filled up to a multiple of 64 bytes and to `least`.
std::string header_of(IntType type, const std::string& shape, std::size_t least = 0) {
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}",
                                 kDescriptions[static_cast<std::size_t>(type)], shape);
  const std::size_t before = kMagic.size() + 2;
  text.append(63 - (before + text.size()) % 64, ' ');
  if (before + text.size() + 1 < least) text.append(least - before - text.size() - 1, ' ');
  text.push_back('\n');
  std::string header(kMagic);
  header.push_back(static_cast<char>(text.size() % 256));
  header.push_back(static_cast<char>(text.size() / 256));
  return header + text;
}

[[noreturn]] void cannot_be_written(const std::filesystem::path& path) {
  throw Error(fmt::format(
      "{}: must be writable; got a full disk or a read-only folder; free it, or name another folder (--data-cache-path)",
      path.string()));
}

void sync_written(const std::filesystem::path& path) {
  try {
    sync_path(path);
  } catch (const Error&) {
    cannot_be_written(path);
  }
}

constexpr std::size_t kReserved = 128;  // bytes of a header of one dimension of any size

}  // namespace

IntArray IntArray::map(const std::filesystem::path& path) {
  auto file = std::make_shared<const MappedFile>(path);
  const std::span<const std::byte> all = file->bytes();
  const std::string_view text(reinterpret_cast<const char*>(all.data()), all.size());
  const auto damaged = [&path](std::string_view what) {
    return DataError(
        fmt::format("{}: must be a .npy file of integers as NumPy writes it; got {}; delete it or "
                    "make it again",
                    path.string(), what));
  };
  if (text.size() < 10 || text.substr(0, 8) != kMagic) throw damaged("another magic or version");
  const std::size_t header_size =
      static_cast<unsigned char>(text[8]) + 256U * static_cast<unsigned char>(text[9]);
  if (text.size() < 10 + header_size) throw damaged("a truncated header");
  const std::string_view header = text.substr(10, header_size);

  IntArray array;
  const std::string_view description = after_key(header, "'descr': '").substr(0, 3);
  const auto* type = std::find(kDescriptions.begin(), kDescriptions.end(), description);
  if (type == kDescriptions.end()) throw damaged(fmt::format("type '{}'", description));
  if (!after_key(header, "'fortran_order': ").starts_with("False")) throw damaged("another element order");
  const auto shape = parse_shape(after_key(header, "'shape': "));
  if (!shape) throw damaged("a shape that is not one or two sizes");
  array.type_ = static_cast<IntType>(type - kDescriptions.begin());
  std::tie(array.rows_, array.cols_) = *shape;
  array.bytes_ = all.subspan(10 + header_size);
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(array.rows_, array.cols_, &bytes) ||
      __builtin_mul_overflow(bytes, kItemSizes[static_cast<std::size_t>(array.type_)], &bytes) ||
      bytes != static_cast<std::int64_t>(array.bytes_.size()))
    throw damaged(
        fmt::format("{} bytes for a shape of {} x {}", array.bytes_.size(), array.rows_, array.cols_));
  array.owner_ = std::move(file);
  return array;
}

void IntArray::save(const std::filesystem::path& path) const {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << header_of(type_, cols_ == 1 ? fmt::format("({},)", rows_) : fmt::format("({}, {})", rows_, cols_));
  out.write(reinterpret_cast<const char*>(bytes_.data()), static_cast<std::streamsize>(bytes_.size()));
  out.close();
  if (!out) cannot_be_written(path);
  sync_written(path);
}

IntWriter::IntWriter(const std::filesystem::path& path, IntType type)
    : path_(path), type_(type), out_(path, std::ios::binary | std::ios::trunc) {
  out_ << std::string(kReserved, ' ');
  if (!out_) cannot_be_written(path_);
}

void IntWriter::write(IntType type, std::span<const std::byte> bytes) {
  COL_CHECK(type == type_, "IntWriter: {} must hold one type; got another", path_.string());
  out_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  size_ += std::ssize(bytes) / kItemSizes[static_cast<std::size_t>(type_)];
  if (!out_) cannot_be_written(path_);
}

void IntWriter::close() {
  out_.seekp(0);
  out_ << header_of(type_, fmt::format("({},)", size_), kReserved);
  out_.close();
  if (!out_) cannot_be_written(path_);
  sync_written(path_);
}

}  // namespace colonnade::data
