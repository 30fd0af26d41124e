// See npy.h. The header is a Python dictionary of three keys; only NumPy's own format is parsed.
#include "colonnade/data/npy.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <optional>
#include <string>

namespace colonnade::data {
namespace {

constexpr std::string_view kMagic("\x93NUMPY\x01\x00", 8);
constexpr std::array<std::string_view, 4> kDescriptions{"<i2", "<i4", "<i8", "<u4"};
constexpr std::array<std::int64_t, 4> kItemSizes{2, 4, 8, 4};

/// The text after `'key': ` in the header; empty if the key is missing.
std::string_view after_key(std::string_view header, std::string_view key) {
  const std::size_t at = header.find(key);
  return at == std::string_view::npos ? std::string_view() : header.substr(at + key.size());
}

/// Parses "(3,)" or "(3, 2)" as rows and columns.
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

/// Magic and header, padded to a multiple of 64 bytes and to at least `least` bytes.
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

[[noreturn]] void throw_unwritable(const std::filesystem::path& path) {
  throw Error(fmt::format(
      "{} must be writable; got a full disk or a read-only folder; free it, or name another folder (--data-cache-path)",
      path.string()));
}

void sync_written(const std::filesystem::path& path) {
  try {
    sync_path(path);
  } catch (const Error&) {
    throw_unwritable(path);
  }
}

/// A file of known size, written sequentially.
class PreallocatedFile {
 public:
  PreallocatedFile(const std::filesystem::path& path, std::size_t size)
      : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
    if (fd_ < 0) throw_unwritable(path_);
    // Preallocated blocks are faster to fill. The call may fail where the file system does not support it.
    (void)::fallocate(fd_, 0, 0, static_cast<off_t>(size));
  }
  ~PreallocatedFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  PreallocatedFile(const PreallocatedFile&) = delete;
  PreallocatedFile& operator=(const PreallocatedFile&) = delete;

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::write(fd_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) throw_unwritable(path_);
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
  }
  void close() {
    const bool synced = ::fsync(fd_) == 0;
    if (::close(std::exchange(fd_, -1)) != 0 || !synced) throw_unwritable(path_);
  }

 private:
  std::filesystem::path path_;
  int fd_;
};

constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// Alignment of an array: huge pages from four of them on; below, the unused rest of the last page matters.
std::align_val_t alignment_of(std::size_t bytes) {
  return std::align_val_t{bytes < 4 * kHugePage ? 64 : kHugePage};
}

constexpr std::size_t kReserved = 128;  // header bytes that fit any one-dimensional shape

}  // namespace

void* allocate_array(std::size_t bytes) {
  void* array = ::operator new(bytes, alignment_of(bytes));
  // Advisory: it only affects speed.
  if (bytes >= 4 * kHugePage) (void)::madvise(array, bytes, MADV_HUGEPAGE);
  return array;
}

void free_array(void* array, std::size_t bytes) noexcept { ::operator delete(array, alignment_of(bytes)); }

IntArray IntArray::map(const std::filesystem::path& path) {
  auto file = std::make_shared<const MappedFile>(path);
  const std::span<const std::byte> all = file->bytes();
  const std::string_view text(reinterpret_cast<const char*>(all.data()), all.size());
  const auto damaged = [&path](std::string_view what) {
    return DataError(
        fmt::format("{} must be a .npy file of integers in NumPy's format; got {}; delete or rebuild it",
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
  const std::string header =
      header_of(type_, cols_ == 1 ? fmt::format("({},)", rows_) : fmt::format("({}, {})", rows_, cols_));
  PreallocatedFile file(path, header.size() + bytes_.size());
  file.write(std::as_bytes(std::span(header)));
  file.write(bytes_);
  file.close();
}

IntWriter::IntWriter(const std::filesystem::path& path, IntType type)
    : path_(path), type_(type), out_(path, std::ios::binary | std::ios::trunc) {
  out_ << std::string(kReserved, ' ');
  if (!out_) throw_unwritable(path_);
}

void IntWriter::write(IntType type, std::span<const std::byte> bytes) {
  COL_CHECK(type == type_, "IntWriter: {} must hold integers of one type; got another", path_.string());
  out_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  size_ += std::ssize(bytes) / kItemSizes[static_cast<std::size_t>(type_)];
  if (!out_) throw_unwritable(path_);
}

void IntWriter::close() {
  out_.seekp(0);
  out_ << header_of(type_, fmt::format("({},)", size_), kReserved);
  out_.close();
  if (!out_) throw_unwritable(path_);
  sync_written(path_);
}

}  // namespace colonnade::data
