// Reader of indexed data sets; see indexed_dataset.h.
#include "colonnade/data/indexed/indexed_dataset.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "colonnade/base/error.h"
#include "colonnade/kernels/cpu/vector.h"

namespace colonnade::data {
namespace {

constexpr std::size_t kHeaderSize = 34;
constexpr std::int64_t kForgetAfter = 1 << 23;  // index entries checked before pages are released
constexpr std::array<char, 9> kMagic{'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};

/// Loads a value from an unaligned address.
template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <typename T>
COL_CLONES void widen(const std::byte* from, std::span<std::int64_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = load<T>(from + i * sizeof(T));  // NOLINT(bugprone-signed-char-misuse)
}

std::string with_suffix(const std::string& prefix, std::string_view suffix) {
  for (const std::string_view known : {".bin", ".idx"})
    if (prefix.ends_with(known)) return prefix.substr(0, prefix.size() - 4).append(suffix);
  return prefix + std::string(suffix);
}

MappedFile map_part(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path))
    throw DataError(fmt::format(
        "{}: a data set must have two files, PREFIX.bin and PREFIX.idx; got no such file; check the "
        "prefix (without .bin) or create it with `colonnade preprocess`",
        path.string()));
  return MappedFile(path);
}

}  // namespace

std::int64_t item_size(TokenType type) {
  constexpr std::array<std::int64_t, 9> kSizes{0, 1, 1, 2, 4, 8, 8, 4, 2};
  const auto code = static_cast<std::size_t>(type);
  return code < kSizes.size() ? kSizes[code] : 0;
}

std::string to_string(TokenType type) {
  constexpr std::array<const char*, 9> kNames{"?",     "uint8",   "int8",    "int16", "int32",
                                              "int64", "float64", "float32", "uint16"};
  const auto code = static_cast<std::size_t>(type);
  return kNames[code < kNames.size() ? code : 0];
}

TokenType token_type_for(std::int64_t vocab_size) {
  return vocab_size < 65500 ? TokenType::kUint16 : TokenType::kInt32;
}

std::filesystem::path bin_path(const std::string& prefix) { return with_suffix(prefix, ".bin"); }
std::filesystem::path idx_path(const std::string& prefix) { return with_suffix(prefix, ".idx"); }

IndexedDataset::IndexedDataset(const std::string& prefix, bool multimodal)
    : prefix_(with_suffix(prefix, "")),
      idx_(map_part(idx_path(prefix))),
      bin_(map_part(bin_path(prefix))),
      multimodal_(multimodal) {
  read_header();
  check_arrays();
}

void IndexedDataset::read_header() {
  const std::string path = idx_path(prefix_).string();
  const std::span<const std::byte> all = idx_.bytes();
  if (all.size() < kHeaderSize)
    throw DataError(
        fmt::format("{}: the header must be {} bytes; got a file of {}; it is truncated, copy it again", path,
                    kHeaderSize, all.size()));
  if (std::memcmp(all.data(), kMagic.data(), kMagic.size()) != 0)
    throw DataError(
        fmt::format("{} must start with 'MMIDIDX'; got something else; it is not the index of a "
                    "Megatron data set",
                    path));
  if (const auto version = load<std::uint64_t>(all.data() + 9); version != 1)
    throw DataError(fmt::format("{}: version must be 1; got {}; rebuild the data set", path, version));
  type_ = static_cast<TokenType>(all[17]);
  if (item_size(type_) == 0)
    throw DataError(fmt::format("{}: the type code must be 1 to 8; got {}; the file is damaged", path,
                                static_cast<int>(all[17])));
  const auto sequences = load<std::uint64_t>(all.data() + 18);
  const auto starts = load<std::uint64_t>(all.data() + 26);
  constexpr std::uint64_t kMost = std::uint64_t{1} << 58;  // the sums below fit 64 bits
  const std::uint64_t expected =
      sequences < kMost && starts < kMost ? kHeaderSize + 12 * sequences + 8 * starts : 0;
  const bool fits =
      expected != 0 && (all.size() == expected + sequences || (all.size() == expected && !multimodal_));
  if (!fits || starts == 0)
    throw DataError(fmt::format(
        "{}: {} sequences and {} document starts{} need {} bytes; got {}; the file is {}, copy "
        "it again",
        path, sequences, starts, multimodal_ ? " with modes" : "",
        expected == 0 ? "impossibly many" : fmt::to_string(expected + (multimodal_ ? sequences : 0)),
        all.size(), all.size() < expected ? "truncated" : "damaged or overwritten"));
  num_sequences_ = static_cast<std::int64_t>(sequences);
  num_document_starts_ = static_cast<std::int64_t>(starts);
  lengths_ = all.data() + kHeaderSize;
  pointers_ = lengths_ + 4 * sequences;
  documents_ = pointers_ + 8 * sequences;
  modes_ = documents_ + 8 * starts;
}

void IndexedDataset::check_arrays() {
  const std::string path = idx_path(prefix_).string();
  const auto bin_bytes = static_cast<std::int64_t>(bin_.bytes().size());
  const std::int64_t item = item_size(type_);
  std::int64_t end = 0;  // end of the last sequence so far, in bytes
  for (std::int64_t i = 0; i < num_sequences_; ++i) {
    if (i % kForgetAfter == kForgetAfter - 1) forget_pages();
    const std::int64_t tokens = length(i);
    const auto at = load<std::int64_t>(pointers_ + 8 * i);
    if (tokens < 0 || at < end || at > bin_bytes || tokens * item > bin_bytes - at)
      throw DataError(
          fmt::format("{}: sequence {} must lie between byte {} and the end of the .bin at {}; got {} tokens "
                      "of {} bytes at byte {}; .bin or .idx is damaged or truncated, copy both again",
                      path, i, end, bin_bytes, tokens, item, at));
    end = at + tokens * item;
    num_tokens_ += tokens;
  }
  if (end != bin_bytes)
    throw DataError(
        fmt::format("{} must end where the last sequence ends, at byte {}; got {} bytes; .bin and .idx do "
                    "not belong together, copy both again",
                    bin_path(prefix_).string(), end, bin_bytes));
  std::int64_t before = 0;
  for (std::int64_t d = 0; d < num_document_starts_; ++d) {
    if (d % kForgetAfter == kForgetAfter - 1) forget_pages();
    const std::int64_t start = document_start(d);
    const bool last = d + 1 == num_document_starts_;
    if (start < before || start > num_sequences_ || (d == 0 && start != 0) ||
        (last && start != num_sequences_))
      throw DataError(
          fmt::format("{}: document starts must ascend from 0 to {}; got {} at document {} after {}; the "
                      "file is damaged, copy it again",
                      path, num_sequences_, start, d, before));
    before = start;
  }
}

bool IndexedDataset::has_modes() const {
  return num_sequences_ > 0 && idx_.bytes().data() + idx_.bytes().size() > modes_;
}

std::int64_t IndexedDataset::length(std::int64_t sequence) const {
  return load<std::int32_t>(lengths_ + 4 * sequence);
}

std::int64_t IndexedDataset::document_start(std::int64_t document) const {
  return load<std::int64_t>(documents_ + 8 * document);
}

std::int8_t IndexedDataset::mode(std::int64_t sequence) const {
  return static_cast<std::int8_t>(modes_[sequence]);
}

std::span<const std::byte> IndexedDataset::raw(std::int64_t sequence) const {
  if (sequence < 0 || sequence >= num_sequences_)
    throw DataError(
        fmt::format("{}: sequence numbers must be 0 to {}; got {}; the index cache may belong to other data, "
                    "delete it",
                    prefix_, num_sequences_ - 1, sequence));
  const auto at = load<std::int64_t>(pointers_ + 8 * sequence);
  return bin_.bytes().subspan(static_cast<std::size_t>(at),
                              static_cast<std::size_t>(length(sequence) * item_size(type_)));
}

void IndexedDataset::tokens(std::int64_t sequence, std::int64_t offset, std::span<std::int64_t> out) const {
  const std::span<const std::byte> all = raw(sequence);
  const std::int64_t count = length(sequence);
  if (offset < 0 || offset > count || static_cast<std::int64_t>(out.size()) > count - offset)
    throw DataError(fmt::format(
        "{}: sequence {} has {} tokens; got a request for {} from {}; the index cache may belong to "
        "other data, delete it",
        prefix_, sequence, count, out.size(), offset));
  const std::byte* from = all.data() + offset * item_size(type_);
  switch (type_) {
    case TokenType::kUint8:
      return widen<std::uint8_t>(from, out);
    case TokenType::kInt8:
      return widen<std::int8_t>(from, out);
    case TokenType::kInt16:
      return widen<std::int16_t>(from, out);
    case TokenType::kInt32:
      return widen<std::int32_t>(from, out);
    case TokenType::kInt64:
      return widen<std::int64_t>(from, out);
    case TokenType::kUint16:
      return widen<std::uint16_t>(from, out);
    case TokenType::kFloat32:
    case TokenType::kFloat64:
      break;
  }
  throw DataError(
      fmt::format("{}: token ids must be integers; got {}; this data set cannot feed a language model",
                  prefix_, to_string(type_)));
}

void IndexedDataset::prefetch(std::int64_t sequence, std::int64_t offset, std::int64_t count) const {
  const std::int64_t item = item_size(type_);
  const std::span<const std::byte> all = bin_.bytes();
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto first = static_cast<std::size_t>(load<std::int64_t>(pointers_ + 8 * sequence) + offset * item);
  const std::size_t begin = std::min(first, all.size()) / page * page;
  const std::size_t end = std::min(first + static_cast<std::size_t>(count * item), all.size());
  if (end > begin) ::madvise(const_cast<std::byte*>(all.data() + begin), end - begin, MADV_WILLNEED);
}

void IndexedDataset::forget_pages() const {
  for (const MappedFile* file : {&idx_, &bin_}) {
    const std::span<const std::byte> all = file->bytes();
    if (!all.empty()) ::madvise(const_cast<std::byte*>(all.data()), all.size(), MADV_DONTNEED);
  }
}

}  // namespace colonnade::data
