// See indexed_dataset.h: the builder. Lengths and document starts wait in temporary files, so memory
// does not grow with the data.
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

constexpr std::int64_t kIndexHeader = 34;  ///< magic, version, type, both counts

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

/// Writes `ids` as tokens of type T; false when one does not fit.
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

/// Where the files go is the user's choice, and so is what to do when the system refuses to write there.
[[noreturn]] void refuse(const fs::path& path, const std::string& reason) {
  throw ConfigError(
      fmt::format("--output-prefix: its folder must be writable and have room; got {} for {}; choose another "
                  "folder or make room",
                  reason, path.string()));
}

[[noreturn]] void refuse_lost(const fs::path& path, std::int64_t bytes, const std::string& got) {
  throw DataError(
      fmt::format("{} must hold the {} bytes that a run before had written; got {}; delete the .resume file "
                  "beside it to begin anew",
                  path.string(), bytes, got));
}

/// A file with its last name, which may also be of another data set.
void require_size(const fs::path& path, std::int64_t bytes) {
  std::error_code error;
  const auto size = static_cast<std::int64_t>(fs::file_size(path, error));
  if (error || size != bytes) refuse_lost(path, bytes, error ? error.message() : std::to_string(size));
}

}  // namespace

class IndexedDatasetBuilder::Part {
 public:
  /// Holds the first `size` bytes of what the file had; nobody else may have it open as a Part. One that goes
  /// on must be there, and stays unless keep(false) is said.
  Part(fs::path path, std::int64_t size, bool goes_on) : path_(std::move(path)), keep_(goes_on) {
    const int fd = ::open(path_.c_str(), O_RDWR | (goes_on ? 0 : O_CREAT) | O_CLOEXEC, 0666);
    if (fd < 0 && goes_on && errno == ENOENT) refuse_lost(path_, size, "no such file");
    if (fd < 0) refuse(path_, std::strerror(errno));
    file_ = ::fdopen(fd, "rb+");
    if (file_ == nullptr) {
      ::close(fd);
      refuse(path_, std::strerror(errno));
    }
    try {
      begin_at(size);
    } catch (...) {
      std::fclose(file_);
      throw;
    }
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() {
    if (file_ != nullptr) std::fclose(file_);
    std::error_code ignored;
    if (!path_.empty() && !keep_) fs::remove(path_, ignored);
  }

  void write(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;  // its pointer may be null, which fwrite does not take
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) fail();
  }
  void rewind() {
    if (std::fseek(file_, 0, SEEK_SET) != 0) fail();  // writes what is left first
  }
  /// The next bytes after rewind(), at most buffer.size(); 0 at the end.
  std::size_t read(std::span<std::byte> buffer) {
    const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), file_);
    if (std::ferror(file_) != 0)
      throw Error(fmt::format("{}: what was written must be readable; got {}; check the disk", path_.string(),
                              std::strerror(errno)));
    return n;
  }
  void sync() {
    if (std::fflush(file_) != 0 || ::fsync(::fileno(file_)) != 0) fail();
  }
  void rename_to(const fs::path& target) {
    std::error_code error;
    fs::rename(path_, target, error);
    if (error) refuse(target, error.message());
    path_.clear();
  }
  void keep(bool keep) { keep_ = keep; }

 private:
  [[noreturn]] void fail() const { refuse(path_, std::strerror(errno)); }
  void begin_at(std::int64_t size) {
    const int fd = ::fileno(file_);
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      throw ConfigError(fmt::format(
          "--output-prefix: one process at a time must write a data set; got {}, which another one writes; "
          "wait for it or choose another prefix",
          path_.string()));
    struct stat about {};
    if (::fstat(fd, &about) != 0) fail();
    if (about.st_size < size) refuse_lost(path_, size, std::to_string(about.st_size));
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
  if (error) refuse(folder, error.message());
  open_parts({0, -1, 0}, false);
  documents_->write(bytes_of(std::int64_t{0}));
}

// finalize() gives .bin its name, then .idx, then removes the lengths, then the document starts: without
// lengths it is done, and with them all of it can be done once more. Before it began, what carries the last
// names is an earlier data set and stays.
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
  open_parts(written, true);
}

fs::path IndexedDatasetBuilder::part_path(const char* what) const {
  return fmt::format("{}.{}.part", bin_path(prefix_).string(), what);
}

void IndexedDatasetBuilder::open_parts(const WrittenCounts& written, bool goes_on) {
  const auto part = [&](const char* what, std::int64_t size) {
    return std::make_unique<Part>(part_path(what), size, goes_on);
  };
  bin_ = part("tokens", written.tokens * item_size(type_));
  lengths_ = part("lengths", written.sequences * 4);
  documents_ = part("documents", (written.documents + 1) * 8);
  if (multimodal_) modes_ = part("modes", written.sequences);
}

WrittenCounts IndexedDatasetBuilder::sync() {
  for (Part* part : {bin_.get(), lengths_.get(), documents_.get(), modes_.get()})
    if (part != nullptr) part->sync();
  return {num_sequences_, num_document_starts_ - 1, num_tokens_};
}

void IndexedDatasetBuilder::keep_parts(bool keep) {
  for (Part* part : {bin_.get(), lengths_.get(), documents_.get(), modes_.get()})
    if (part != nullptr) part->keep(keep);
}

IndexedDatasetBuilder::~IndexedDatasetBuilder() = default;

void IndexedDatasetBuilder::add_sequence(std::span<const std::byte> bytes, std::int8_t mode) {
  const std::int64_t tokens = static_cast<std::int64_t>(bytes.size()) / item_size(type_);
  if (tokens > std::numeric_limits<std::int32_t>::max())
    throw DataError(fmt::format("{}: a sequence holds at most {} tokens; got {}; split the document", prefix_,
                                std::numeric_limits<std::int32_t>::max(), tokens));
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
  COL_CHECK(at == all.size(), "add_document: lengths must sum to {} ids; {} bytes are left", ids.size(),
            all.size() - at);
  end_document();
}

void IndexedDatasetBuilder::add_index(const IndexedDataset& other, const std::function<void()>& between) {
  if (other.type() != type_)
    throw DataError(
        fmt::format("{}: data sets that are merged must have one type; got {} and {} of {}; preprocess both "
                    "with the same tokenizer",
                    prefix_, to_string(type_), to_string(other.type()), other.name()));
  constexpr std::int64_t kForget = 1 << 26;  // bytes read between two times that pages are let go
  std::int64_t read = kForget;               // opening it has read its index
  const auto forget_after = [&](std::int64_t bytes) {
    if (read += bytes; read < kForget) return;
    other.forget_pages();
    if (between) between();
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

void IndexedDatasetBuilder::write_index(Part& out) {
  constexpr std::array<char, 9> kMagic{'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
  out.write(std::as_bytes(std::span(kMagic)));
  out.write(bytes_of(std::uint64_t{1}));
  out.write(bytes_of(type_));
  out.write(bytes_of(num_sequences_));
  out.write(bytes_of(num_document_starts_));
  std::vector<std::byte> buffer(std::size_t{1} << 16);
  const auto copy = [&](Part& from) {
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
  if (lengths_ == nullptr) return;  // the builder that this one goes on from had done so
  Part idx(idx_path(prefix_).string() + ".part", 0, false);
  write_index(idx);
  idx.sync();
  bin_->sync();
  // The old index goes first and the new one comes last: a .idx never stands beside another .bin.
  std::error_code error;
  fs::remove(idx_path(prefix_), error);
  if (error) refuse(idx_path(prefix_), error.message());
  bin_->rename_to(bin_path(prefix_));
  idx.rename_to(idx_path(prefix_));
  const fs::path folder = idx_path(prefix_).parent_path();
  sync_path(folder.empty() ? fs::path(".") : folder);
  keep_parts(false);
  lengths_.reset();
  documents_.reset();
  modes_.reset();
}

}  // namespace colonnade::data
