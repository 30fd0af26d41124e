// Builder of indexed data sets; see indexed_dataset.h. Lengths and document starts are kept in temporary
// files, so memory does not grow with the data.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>

#include "colonnade/base/error.h"
#include "colonnade/data/indexed/indexed_dataset.h"

namespace colonnade::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kIndexHeader = 34;  ///< bytes of magic, version, type and both counts

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

/// Writes `ids` as tokens of type T; returns false if one does not fit.
template <typename T>
bool pack_as(std::span<const std::int32_t> ids, std::vector<std::byte>& out) {
  out.resize(ids.size() * sizeof(T));
  bool fits = true;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const T value = static_cast<T>(ids[i]);
    fits = fits && static_cast<std::int32_t>(value) == ids[i];
    std::memcpy(out.data() + i * sizeof(T), &value, sizeof(T));
  }
  return fits;
}

bool pack(TokenType type, std::span<const std::int32_t> ids, std::vector<std::byte>& out) {
  switch (type) {
    case TokenType::kUint8:
      return pack_as<std::uint8_t>(ids, out);
    case TokenType::kInt8:
      return pack_as<std::int8_t>(ids, out);
    case TokenType::kInt16:
      return pack_as<std::int16_t>(ids, out);
    case TokenType::kInt32:
      return pack_as<std::int32_t>(ids, out);
    case TokenType::kInt64:
      return pack_as<std::int64_t>(ids, out);
    case TokenType::kFloat64:
      return pack_as<double>(ids, out);
    case TokenType::kFloat32:
      return pack_as<float>(ids, out);
    case TokenType::kUint16:
      return pack_as<std::uint16_t>(ids, out);
  }
  return false;
}

/// A ConfigError, because the output folder is the user's choice.
[[noreturn]] void throw_not_writable(const fs::path& path, const std::string& reason) {
  throw ConfigError(fmt::format(
      "--output-prefix: its folder must be writable and have free space; got {} for {}; choose another "
      "folder or free space",
      reason, path.string()));
}

[[noreturn]] void throw_lost(const fs::path& path, std::int64_t bytes, const std::string& got) {
  throw DataError(fmt::format(
      "{} must hold the {} bytes that an earlier run wrote; got {}; delete the .resume file next to it "
      "to start over",
      path.string(), bytes, got));
}

/// Throws unless a file with a final name, which may belong to another data set, has the expected size.
void require_size(const fs::path& path, std::int64_t bytes) {
  std::error_code error;
  const auto size = static_cast<std::int64_t>(fs::file_size(path, error));
  if (error || size != bytes) throw_lost(path, bytes, error ? error.message() : std::to_string(size));
}

}  // namespace

class IndexedDatasetBuilder::PartFile {
 public:
  /// Keeps the first `size` bytes of an existing file, which no other PartFile may have open. With `resume`
  /// the file must exist, and is not deleted unless keep(false) is called.
  PartFile(fs::path path, std::int64_t size, bool resume) : path_(std::move(path)), keep_(resume) {
    const int fd = ::open(path_.c_str(), O_RDWR | (resume ? 0 : O_CREAT) | O_CLOEXEC, 0666);
    if (fd < 0 && resume && errno == ENOENT) throw_lost(path_, size, "no such file");
    if (fd < 0) throw_not_writable(path_, std::strerror(errno));
    file_ = ::fdopen(fd, "rb+");
    if (file_ == nullptr) {
      ::close(fd);
      throw_not_writable(path_, std::strerror(errno));
    }
    try {
      truncate_to(size);
    } catch (...) {
      std::fclose(file_);
      throw;
    }
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  ~PartFile() {
    if (file_ != nullptr) std::fclose(file_);
    std::error_code ignored;
    if (!path_.empty() && !keep_) fs::remove(path_, ignored);
  }

  void write(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;  // fwrite does not accept a null pointer
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) fail();
  }
  void rewind() {
    if (std::fseek(file_, 0, SEEK_SET) != 0) fail();  // also flushes
  }
  /// Reads the next bytes after rewind(), at most buffer.size(); returns 0 at the end.
  std::size_t read(std::span<std::byte> buffer) {
    const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), file_);
    if (std::ferror(file_) != 0)
      throw Error(fmt::format("{}: written data must be readable; got {}; check the disk", path_.string(),
                              std::strerror(errno)));
    return n;
  }
  void sync() {
    if (std::fflush(file_) != 0 || ::fsync(::fileno(file_)) != 0) fail();
  }
  void rename_to(const fs::path& target) {
    std::error_code error;
    fs::rename(path_, target, error);
    if (error) throw_not_writable(target, error.message());
    path_.clear();
  }
  void keep(bool keep) { keep_ = keep; }

 private:
  [[noreturn]] void fail() const { throw_not_writable(path_, std::strerror(errno)); }
  void truncate_to(std::int64_t size) {
    const int fd = ::fileno(file_);
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      throw ConfigError(fmt::format(
          "--output-prefix: only one process may write a data set; got {}, which another one writes; wait for it "
          "or choose another prefix",
          path_.string()));
    struct stat about {};
    if (::fstat(fd, &about) != 0) fail();
    if (about.st_size < size) throw_lost(path_, size, std::to_string(about.st_size));
    if (::ftruncate(fd, size) != 0 || std::fseek(file_, 0, SEEK_END) != 0) fail();
  }

  fs::path path_;
  std::FILE* file_ = nullptr;
  bool keep_ = false;
};

IndexedDatasetBuilder::IndexedDatasetBuilder(const std::string& prefix, TokenType type, bool multimodal)
    : prefix_(prefix), type_(type), multimodal_(multimodal) {
  std::error_code error;
  const fs::path folder = bin_path(prefix).parent_path();
  if (!folder.empty()) fs::create_directories(folder, error);
  if (error) throw_not_writable(folder, error.message());
  open_part_files({0, -1, 0}, false);
  documents_->write(bytes_of(std::int64_t{0}));
}

// finalize() renames .bin, then .idx, then removes the lengths, then the document starts: without the lengths
// it has completed, with them it can be repeated as a whole. Files with the final names from before
// finalize() belong to an earlier data set and are kept.
IndexedDatasetBuilder::IndexedDatasetBuilder(const std::string& prefix, TokenType type,
                                             const WrittenCounts& written, bool complete)
    : prefix_(prefix),
      type_(type),
      multimodal_(false),
      num_sequences_(written.sequences),
      num_document_starts_(written.documents + 1),
      num_tokens_(written.tokens) {
  std::error_code error;
  const std::int64_t bytes = written.tokens * item_size(type);
  if (complete && !fs::exists(part_path("lengths"), error)) {
    require_size(bin_path(prefix), bytes);
    require_size(idx_path(prefix), kIndexHeader + written.sequences * 12 + num_document_starts_ * 8);
    fs::remove(part_path("documents"), error);
    return;
  }
  if (complete && !fs::exists(part_path("tokens"), error)) {
    require_size(bin_path(prefix), bytes);
    fs::rename(bin_path(prefix), part_path("tokens"), error);
  }
  open_part_files(written, true);
}

fs::path IndexedDatasetBuilder::part_path(const char* what) const {
  return fmt::format("{}.{}.part", bin_path(prefix_).string(), what);
}

void IndexedDatasetBuilder::open_part_files(const WrittenCounts& written, bool resume) {
  const auto part = [&](const char* what, std::int64_t size) {
    return std::make_unique<PartFile>(part_path(what), size, resume);
  };
  bin_ = part("tokens", written.tokens * item_size(type_));
  lengths_ = part("lengths", written.sequences * 4);
  documents_ = part("documents", (written.documents + 1) * 8);
  if (multimodal_) modes_ = part("modes", written.sequences);
}

WrittenCounts IndexedDatasetBuilder::sync() {
  for (PartFile* part : {bin_.get(), lengths_.get(), documents_.get(), modes_.get()})
    if (part != nullptr) part->sync();
  return {num_sequences_, num_document_starts_ - 1, num_tokens_};
}

void IndexedDatasetBuilder::keep_part_files(bool keep) {
  for (PartFile* part : {bin_.get(), lengths_.get(), documents_.get(), modes_.get()})
    if (part != nullptr) part->keep(keep);
}

IndexedDatasetBuilder::~IndexedDatasetBuilder() = default;

void IndexedDatasetBuilder::add_sequence(std::span<const std::byte> bytes, std::int8_t mode) {
  const std::int64_t tokens = static_cast<std::int64_t>(bytes.size()) / item_size(type_);
  if (tokens > std::numeric_limits<std::int32_t>::max())
    throw DataError(fmt::format("{}: a sequence must have at most {} tokens; got {}; split the document",
                                prefix_, std::numeric_limits<std::int32_t>::max(), tokens));
  bin_->write(bytes);
  lengths_->write(bytes_of(static_cast<std::int32_t>(tokens)));
  if (multimodal_) modes_->write(bytes_of(mode));
  ++num_sequences_;
  num_tokens_ += tokens;
}

void IndexedDatasetBuilder::end_document() {
  documents_->write(bytes_of(num_sequences_));
  ++num_document_starts_;
}

void IndexedDatasetBuilder::add_document(std::span<const std::int32_t> ids,
                                         std::span<const std::int32_t> lengths) {
  if (!pack(type_, ids, packed_))
    throw DataError(
        fmt::format("{}: every token id must fit {}; got ids from {} to {}; the tokenizer's vocabulary is "
                    "larger than the data set's type",
                    prefix_, to_string(type_), *std::min_element(ids.begin(), ids.end()),
                    *std::max_element(ids.begin(), ids.end())));
  const std::span<const std::byte> all(packed_);
  std::size_t at = 0;
  for (const std::int32_t length : lengths) {
    const auto bytes = static_cast<std::size_t>(length * item_size(type_));
    COL_CHECK(length >= 0 && bytes <= all.size() - at,
              "add_document: lengths must sum to {} ids; got a length of {}", ids.size(), length);
    add_sequence(all.subspan(at, bytes));
    at += bytes;
  }
  COL_CHECK(at == all.size(), "add_document: lengths must sum to {} ids; got {} bytes beyond them",
            ids.size(), all.size() - at);
  end_document();
}

void IndexedDatasetBuilder::add_index(const IndexedDataset& other, const std::function<void()>& on_progress) {
  if (other.type() != type_)
    throw DataError(fmt::format(
        "{}: merged data sets must have one type; got {} and {} of {}; preprocess both with the same "
        "tokenizer",
        prefix_, to_string(type_), to_string(other.type()), other.name()));
  constexpr std::int64_t kForget = 1 << 26;  // bytes read before pages are released
  std::int64_t read = kForget;               // opening `other` has read its index
  const auto forget_after = [&](std::int64_t bytes) {
    if (read += bytes; read < kForget) return;
    other.forget_pages();
    if (on_progress) on_progress();
    read = 0;
  };
  const std::int64_t shift = num_sequences_;
  for (std::int64_t i = 0; i < other.num_sequences(); ++i) {
    const std::span<const std::byte> sequence = other.raw(i);
    add_sequence(sequence, multimodal_ ? other.mode(i) : std::int8_t{0});
    forget_after(static_cast<std::int64_t>(sequence.size()) + 12);
  }
  for (std::int64_t d = 1; d <= other.num_documents(); ++d) {
    documents_->write(bytes_of(shift + other.document_start(d)));
    forget_after(8);
  }
  num_document_starts_ += other.num_documents();
}

void IndexedDatasetBuilder::write_index(PartFile& out) {
  constexpr std::array<char, 9> kMagic{'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
  out.write(std::as_bytes(std::span(kMagic)));
  out.write(bytes_of(std::uint64_t{1}));
  out.write(bytes_of(type_));
  out.write(bytes_of(num_sequences_));
  out.write(bytes_of(num_document_starts_));
  std::vector<std::byte> buffer(std::size_t{1} << 16);
  const auto copy = [&](PartFile& from) {
    from.rewind();
    while (const std::size_t n = from.read(buffer)) out.write(std::span(buffer).first(n));
  };
  copy(*lengths_);
  lengths_->rewind();
  std::int64_t pointer = 0;
  while (const std::size_t n = lengths_->read(buffer)) {
    for (std::size_t i = 0; i < n; i += 4) {
      out.write(bytes_of(pointer));
      std::int32_t length = 0;
      std::memcpy(&length, buffer.data() + i, sizeof length);
      pointer += length * item_size(type_);
    }
  }
  copy(*documents_);
  if (multimodal_) copy(*modes_);
}

void IndexedDatasetBuilder::finalize() {
  if (lengths_ == nullptr) return;  // the resumed builder had completed finalize()
  PartFile idx(idx_path(prefix_).string() + ".part", 0, false);
  write_index(idx);
  idx.sync();
  bin_->sync();
  // The old index is removed first and the new one renamed last, so that a .idx never belongs to another
  // .bin.
  std::error_code error;
  fs::remove(idx_path(prefix_), error);
  if (error) throw_not_writable(idx_path(prefix_), error.message());
  bin_->rename_to(bin_path(prefix_));
  idx.rename_to(idx_path(prefix_));
  const fs::path folder = idx_path(prefix_).parent_path();
  sync_path(folder.empty() ? fs::path(".") : folder);
  keep_part_files(false);
  lengths_.reset();
  documents_.reset();
  modes_.reset();
}

}  // namespace colonnade::data
