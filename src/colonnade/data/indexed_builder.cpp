// See indexed_dataset.h: the builder. Lengths and document starts wait in temporary files, so memory
// does not grow with the data.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>

#include "colonnade/base/error.h"
#include "colonnade/data/indexed_dataset.h"

namespace colonnade::data {
namespace {

namespace fs = std::filesystem;

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

}  // namespace

class IndexedDatasetBuilder::Part {
 public:
  explicit Part(fs::path path) : path_(std::move(path)), file_(std::fopen(path_.c_str(), "wb+")) {
    if (file_ == nullptr) refuse(path_, std::strerror(errno));
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() {
    if (file_ != nullptr) std::fclose(file_);
    std::error_code ignored;
    if (!path_.empty()) fs::remove(path_, ignored);
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

 private:
  [[noreturn]] void fail() const { refuse(path_, std::strerror(errno)); }

  fs::path path_;
  std::FILE* file_;
};

IndexedDatasetBuilder::IndexedDatasetBuilder(const std::string& prefix, TokenType type, bool multimodal)
    : prefix_(prefix), type_(type), multimodal_(multimodal) {
  std::error_code error;
  const fs::path folder = bin_path(prefix).parent_path();
  if (!folder.empty()) fs::create_directories(folder, error);
  if (error) refuse(folder, error.message());
  const auto part = [this](const char* what) {
    return std::make_unique<Part>(fmt::format("{}.{}.part-{}", bin_path(prefix_).string(), what, ::getpid()));
  };
  bin_ = part("tokens");
  lengths_ = part("lengths");
  documents_ = part("documents");
  if (multimodal_) modes_ = part("modes");
  documents_->write(bytes_of(std::int64_t{0}));
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

void IndexedDatasetBuilder::add_index(const IndexedDataset& other) {
  if (other.type() != type_)
    throw DataError(
        fmt::format("{}: data sets that are merged must have one type; got {} and {} of {}; preprocess both "
                    "with the same tokenizer",
                    prefix_, to_string(type_), to_string(other.type()), other.name()));
  const std::int64_t shift = num_sequences_;
  for (std::int64_t i = 0; i < other.num_sequences(); ++i)
    add_sequence(other.raw(i), multimodal_ ? other.mode(i) : std::int8_t{0});
  for (std::int64_t d = 1; d <= other.num_documents(); ++d)
    documents_->write(bytes_of(shift + other.document_start(d)));
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
  Part idx(fmt::format("{}.part-{}", idx_path(prefix_).string(), ::getpid()));
  write_index(idx);
  idx.sync();
  bin_->sync();
  // The old index goes first and the new one comes last: a .idx never stands beside another .bin.
  std::error_code error;
  fs::remove(idx_path(prefix_), error);
  if (error) refuse(idx_path(prefix_), error.message());
  bin_->rename_to(bin_path(prefix_));
  idx.rename_to(idx_path(prefix_));
  lengths_.reset();
  documents_.reset();
  modes_.reset();
  const fs::path folder = idx_path(prefix_).parent_path();
  sync_path(folder.empty() ? fs::path(".") : folder);
}

}  // namespace colonnade::data
