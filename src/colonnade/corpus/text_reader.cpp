// See text_reader.h.
#include "colonnade/corpus/text_reader.h"

#include <fcntl.h>
#include <isa-l/igzip_lib.h>
#include <unistd.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "colonnade/base/error.h"
#include "colonnade/base/file_kind.h"
#include "colonnade/base/files.h"
#include "colonnade/corpus/parquet/reader.h"

namespace colonnade::corpus {
namespace {

constexpr std::size_t kPackedBuffer = std::size_t{1} << 18;

/// The file as stored on disk; input of the decompressors.
class PlainReader final : public ByteReader {
 public:
  explicit PlainReader(const std::filesystem::path& path) : path_(path.string()) {
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0 && errno == ENOENT)
      throw DataError(
          fmt::format("{} must be an existing file; got {}; check --input", path_, std::strerror(errno)));
    if (fd_ < 0) unreadable();
  }
  ~PlainReader() override { ::close(fd_); }

  std::size_t read(char* out, std::size_t size) override {
    for (;;) {
      const ssize_t n = ::read(fd_, out, size);
      if (n >= 0) {
        file_bytes_ += n;
        return static_cast<std::size_t>(n);
      }
      if (errno != EINTR) unreadable();
    }
  }
  void go_to(const LinePosition& position) override {
    if (::lseek(fd_, position.byte, SEEK_SET) < 0) unreadable();
    file_bytes_ = position.byte;
  }
  [[nodiscard]] std::int64_t file_bytes() const override { return file_bytes_; }
  /// Returns to the first byte.
  void rewind() {
    file_bytes_ = 0;
    if (::lseek(fd_, 0, SEEK_SET) != 0)
      throw DataError(fmt::format("{} must be a file, not a pipe; got {}; write it to a file first", path_,
                                  std::strerror(errno)));
  }
  [[nodiscard]] DataError damaged(std::string_view kind, std::string_view what) const {
    return DataError(fmt::format("{} must be complete {} data; got {}; copy it again", path_, kind, what));
  }
  /// Error for a compression window larger than the decompressor's memory limit.
  [[nodiscard]] DataError window_too_large() const {
    return DataError(fmt::format(
        "{}: zstd data must be compressed with a window of at most 128 MiB; got a larger one; decompress it, or "
        "compress it without --long and --ultra",
        path_));
  }
  [[nodiscard]] DataError trailing_bytes(std::string_view kind) const {
    return DataError(fmt::format(
        "{} must be {} data to its end; got other bytes after it; decompress it, or copy it again", path_,
        kind));
  }

 private:
  /// An I/O error, which does not mean that the file is damaged.
  [[noreturn]] void unreadable() const {
    throw colonnade::unreadable(path_, std::error_code(errno, std::generic_category()));
  }

  std::string path_;
  int fd_ = -1;
  std::int64_t file_bytes_ = 0;
};

std::string_view gzip_error(int code) {
  if (code == ISAL_INCORRECT_CHECKSUM) return "data with a wrong checksum";
  if (code == ISAL_UNSUPPORTED_METHOD) return "another method than deflate";
  return code == ISAL_INVALID_WRAPPER ? "a damaged header" : "damaged data";
}

class GzipReader final : public ByteReader {
 public:
  explicit GzipReader(std::unique_ptr<PlainReader> file) : file_(std::move(file)), packed_(kPackedBuffer) {
    start_member();
  }

  std::size_t read(char* out, std::size_t size) override {
    state_.next_out = reinterpret_cast<std::uint8_t*>(out);
    state_.avail_out = static_cast<std::uint32_t>(std::min<std::size_t>(size, 1U << 30));
    const std::uint32_t wanted = state_.avail_out;
    while (state_.avail_out == wanted) {
      if (state_.block_state == ISAL_BLOCK_FINISH) {
        if (!skip_zeros()) return 0;
        next_member();
      }
      if (const int code = isal_inflate(&state_); code < 0) throw file_->damaged("gzip", gzip_error(code));
      const bool stuck =
          state_.avail_out == wanted && state_.avail_in == 0 && state_.block_state != ISAL_BLOCK_FINISH;
      if (stuck && !refill()) throw file_->damaged("gzip", "a truncated file");
    }
    return wanted - state_.avail_out;
  }
  [[nodiscard]] std::int64_t file_bytes() const override { return file_->file_bytes(); }

 private:
  bool refill() {
    const std::size_t n = file_->read(packed_.data(), packed_.size());
    state_.next_in = reinterpret_cast<std::uint8_t*>(packed_.data());
    state_.avail_in = static_cast<std::uint32_t>(n);
    return n > 0;
  }
  /// Skips zeros after a member, as gzip does; returns false at the end of the file.
  bool skip_zeros() {
    do {
      for (; state_.avail_in > 0; ++state_.next_in, --state_.avail_in) {
        if (*state_.next_in == 0x1f) return true;
        if (*state_.next_in != 0) throw file_->trailing_bytes("gzip");
      }
    } while (refill());
    return false;
  }
  void start_member() {
    isal_inflate_init(&state_);
    state_.crc_flag = ISAL_GZIP;
  }
  /// Starts the next of several members; input and output positions are kept.
  void next_member() {
    auto* const in = state_.next_in;
    const std::uint32_t in_left = state_.avail_in;
    auto* const out = state_.next_out;
    const std::uint32_t out_left = state_.avail_out;
    start_member();
    state_.next_in = in;
    state_.avail_in = in_left;
    state_.next_out = out;
    state_.avail_out = out_left;
  }

  std::unique_ptr<PlainReader> file_;
  std::vector<char> packed_;
  inflate_state state_{};
};

class ZstdReader final : public ByteReader {
 public:
  explicit ZstdReader(std::unique_ptr<PlainReader> file)
      : file_(std::move(file)), packed_(kPackedBuffer), stream_(ZSTD_createDStream(), ZSTD_freeDStream) {}

  std::size_t read(char* out, std::size_t size) override {
    ZSTD_outBuffer target{out, size, 0};
    while (target.pos == 0) {
      if (source_.pos == source_.size) {
        source_ = {packed_.data(), file_->read(packed_.data(), packed_.size()), 0};
        if (source_.size == 0) {
          if (left_ != 0) throw file_->damaged("zstd", "a truncated file");
          return 0;
        }
      }
      left_ = ZSTD_decompressStream(stream_.get(), &target, &source_);
      if (ZSTD_getErrorCode(left_) == ZSTD_error_frameParameter_windowTooLarge)
        throw file_->window_too_large();
      if (ZSTD_isError(left_) != 0) throw file_->damaged("zstd", ZSTD_getErrorName(left_));
    }
    return target.pos;
  }
  [[nodiscard]] std::int64_t file_bytes() const override { return file_->file_bytes(); }

 private:
  std::unique_ptr<PlainReader> file_;
  std::vector<char> packed_;
  std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream_;
  ZSTD_inBuffer source_{nullptr, 0, 0};
  std::size_t left_ = 0;
};

/// A data frame or a skippable frame: pzstd and seekable files start with the latter.
bool is_zstd(std::string_view begin) {
  return begin.starts_with("\x28\xb5\x2f\xfd") ||
         (begin.size() >= 4 && (static_cast<unsigned char>(begin[0]) & 0xf0U) == 0x50 &&
          begin.substr(1).starts_with("\x2a\x4d\x18"));
}

/// Unsupported formats detected by their first bytes, and how to convert them.
struct UnsupportedFormat {
  std::string_view magic, name, fix;
};
using namespace std::string_view_literals;
constexpr UnsupportedFormat kUnsupported[] = {
    {"BZh91AY&SY"sv, "bzip2", "decompress it with bunzip2"},
    {"\xfd"
     "7zXZ\0"sv,
     "xz", "decompress it with unxz"},
    {"\x04\x22\x4d\x18"sv, "lz4", "decompress it with unlz4"},
    {"PK\x03\x04"sv, "zip", "decompress it with unzip"},
    {"7z\xbc\xaf\x27\x1c"sv, "7-Zip", "decompress it with 7z"},
    {"\xff\xfe"sv, "UTF-16 text", "convert it with iconv -f UTF-16 -t UTF-8"},
    {"\xfe\xff"sv, "UTF-16 text", "convert it with iconv -f UTF-16 -t UTF-8"},
};

void reject_unsupported(const std::filesystem::path& path, std::string_view begin) {
  for (const UnsupportedFormat& format : kUnsupported)
    if (begin.starts_with(format.magic))
      throw DataError(fmt::format("{} must be UTF-8 text, plain or as gzip or zstd, or Parquet; got {}; {}",
                                  path.string(), format.name, format.fix));
}

/// Whether a file is Parquet with an encrypted footer. Text may start with "PARE", but hardly ends with it
/// too.
bool has_encrypted_footer(const std::filesystem::path& path, const char* magic) {
  char end[4] = {0, 0, 0, 0};
  std::ifstream file(path, std::ios::binary);
  return std::memcmp(magic, "PARE", 4) == 0 && file.seekg(-4, std::ios::end) && file.read(end, sizeof end) &&
         std::memcmp(end, "PARE", 4) == 0;
}

}  // namespace

std::unique_ptr<ByteReader> ByteReader::open(const std::filesystem::path& path, const LineLimits& limits) {
  auto file = std::make_unique<PlainReader>(path);
  char magic[64] = {};
  const std::size_t got = file->read(magic, sizeof magic);
  if (got == 0) return file;
  file->rewind();
  reject_lfs_pointer({magic, got}, path);
  reject_unsupported(path, {magic, got});
  if (got >= 2 && std::memcmp(magic, "\x1f\x8b", 2) == 0)
    return std::make_unique<GzipReader>(std::move(file));
  if (is_zstd({magic, got})) return std::make_unique<ZstdReader>(std::move(file));
  if (got >= 4 && (std::memcmp(magic, "PAR1", 4) == 0 || has_encrypted_footer(path, magic))) {
    if (limits.columns.names.empty())
      throw DataError(
          fmt::format("{} must be lines of text; got Parquet; write them to a file", path.string()));
    return parquet::open(path, limits.columns, limits.longest);
  }
  return file;
}

void ByteReader::go_to(const LinePosition& position) {
  std::vector<char> buffer(kPackedBuffer);
  for (std::int64_t bytes = position.byte; bytes > 0;) {
    const auto part = std::min(static_cast<std::size_t>(bytes), buffer.size());
    const std::size_t n = read(buffer.data(), part);
    if (n == 0) return;
    bytes -= static_cast<std::int64_t>(n);
  }
}

void reject_byte_order_mark(std::string_view line, std::string_view after) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (!line.starts_with(kMark) || !line.substr(kMark.size()).starts_with(after)) return;
  throw DataError(
      fmt::format("must be {}; got a byte order mark (U+FEFF) before it; remove it with sed -i "
                  "'1s/^\\xEF\\xBB\\xBF//' FILE",
                  after.empty() ? "text" : "a JSON object"));
}

std::string LineChunk::name_of(std::int64_t line) const {
  return fmt::format("{} {}", is_rows ? "row" : "line", line);
}

LineReader::LineReader(const std::filesystem::path& path, std::size_t target, const LineLimits& limits,
                       LinePosition from)
    : bytes_(ByteReader::open(path, limits)), target_(target), longest_(limits.longest), next_(from) {
  if (from.byte > 0) bytes_->go_to(from);
}

/// Appends the bytes of one read; sets at_end_ if there are none.
std::size_t LineReader::fill(std::string& text) {
  const std::size_t before = text.size();
  text.resize(before + target_);
  const std::size_t n = bytes_->read(text.data() + before, target_);
  text.resize(before + n);
  at_end_ = n == 0;
  return n;
}

/// Reads to the end of a line that is too long and keeps its start.
void LineReader::skip_long_line(LineChunk& chunk) {
  constexpr std::size_t kKept = 100;
  chunk.too_long = static_cast<std::int64_t>(chunk.text.size());
  chunk.text.resize(std::min(chunk.text.size(), kKept));
  chunk.text.shrink_to_fit();
  while (rest_.clear(), fill(rest_) > 0) {
    const std::size_t end = rest_.find('\n');
    chunk.too_long += static_cast<std::int64_t>(std::min(end, rest_.size()));
    if (end == std::string::npos) continue;
    rest_.erase(0, end + 1);
    next_.byte += 1;
    next_.line += 1;
    break;
  }
  next_.byte += chunk.too_long;
}

bool LineReader::next(LineChunk& chunk) {
  chunk.begin = next_;
  chunk.too_long = 0;
  chunk.text = std::move(rest_);
  rest_.clear();
  std::size_t lines_end = chunk.text.rfind('\n') + 1;  // after the last line end; npos + 1 is 0
  while (!at_end_ && (chunk.text.size() < target_ || lines_end == 0)) {
    const std::size_t before = chunk.text.size();
    if (lines_end == 0 && before > longest_) break;
    fill(chunk.text);
    const std::size_t found = std::string_view(chunk.text).substr(before).rfind('\n');
    if (found != std::string_view::npos) lines_end = before + found + 1;
  }
  if (lines_end == 0 && chunk.text.size() > longest_) {
    skip_long_line(chunk);
  } else {
    if (!at_end_) {
      rest_ = chunk.text.substr(lines_end);
      chunk.text.resize(lines_end);
    }
    next_.byte += static_cast<std::int64_t>(chunk.text.size());
    next_.line += std::count(chunk.text.begin(), chunk.text.end(), '\n');
  }
  chunk.end = next_;
  chunk.file_bytes = bytes_->file_bytes();
  chunk.is_rows = bytes_->is_rows();
  return next_.byte > chunk.begin.byte;
}

}  // namespace colonnade::corpus
