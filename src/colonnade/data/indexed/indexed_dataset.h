// Megatron's indexed datasets: PREFIX.idx says where each sequence of tokens lies in PREFIX.bin.
//
// .idx, little-endian, nothing aligned (docs/formats/indexed_dataset.md):
//   "MMIDIDX\0\0", u64 version 1, u8 dtype code, u64 sequences S, u64 D = documents + 1,
//   i32 length in tokens [S], i64 byte offset in .bin [S], i64 first sequence of each document [D],
//   and, in multimodal data only, i8 mode [S].
// .bin: the tokens of all sequences, back to back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "colonnade/base/files.h"
#include "colonnade/data/indexed/token_source.h"

namespace colonnade::data {

/// The codes of the header's type byte.
enum class TokenType : std::uint8_t {
  kUint8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat64 = 6,
  kFloat32 = 7,
  kUint16 = 8,
};

/// Bytes of one token; 0 for a code that does not exist.
std::int64_t item_size(TokenType type);
/// "uint16" and so on.
std::string to_string(TokenType type);
/// What Megatron's tools store a vocabulary in: uint16 below 65,500 ids, else int32.
TokenType token_type_for(std::int64_t vocab_size);

/// PREFIX.bin or PREFIX.idx; a suffix that the prefix already has is kept once.
std::filesystem::path bin_path(const std::string& prefix);
std::filesystem::path idx_path(const std::string& prefix);

/// A memory-mapped data set. Opening reads the whole index once and checks it: magic, version, type,
/// counts against the file's size, lengths >= 0, byte offsets ascending and inside .bin, .bin no longer
/// than the index says, document starts ascending from 0 to the number of sequences.
class IndexedDataset final : public TokenSource {
 public:
  /// Throws DataError when a file is missing or any check fails. `multimodal` requires the modes.
  explicit IndexedDataset(const std::string& prefix, bool multimodal = false);

  [[nodiscard]] std::int64_t num_sequences() const override { return num_sequences_; }
  [[nodiscard]] std::int64_t num_documents() const override { return num_document_starts_ - 1; }
  [[nodiscard]] std::int64_t num_tokens() const { return num_tokens_; }
  [[nodiscard]] TokenType type() const { return type_; }
  /// Whether the index holds modes.
  [[nodiscard]] bool has_modes() const;
  [[nodiscard]] std::string name() const override { return prefix_; }

  [[nodiscard]] std::int64_t length(std::int64_t sequence) const override;
  [[nodiscard]] std::int64_t document_start(std::int64_t document) const override;
  /// The mode of a sequence in multimodal data. Not checked.
  [[nodiscard]] std::int8_t mode(std::int64_t sequence) const;

  /// The sequence as it lies in .bin. Throws DataError when the number does not exist.
  [[nodiscard]] std::span<const std::byte> raw(std::int64_t sequence) const;
  void tokens(std::int64_t sequence, std::int64_t offset, std::span<std::int64_t> out) const override;
  void announce(std::int64_t sequence, std::int64_t offset, std::int64_t count) const override;
  /// Lets the pages that were read go out of this process's memory; they come back when they are read again.
  void forget_pages() const;

 private:
  void read_header();
  void check_arrays();

  std::string prefix_;
  MappedFile idx_;
  MappedFile bin_;
  TokenType type_ = TokenType::kInt32;
  bool multimodal_ = false;
  std::int64_t num_sequences_ = 0;
  std::int64_t num_document_starts_ = 0;
  std::int64_t num_tokens_ = 0;
  const std::byte* lengths_ = nullptr;
  const std::byte* pointers_ = nullptr;
  const std::byte* documents_ = nullptr;
  const std::byte* modes_ = nullptr;
};

/// How much a builder has written.
struct WrittenCounts {
  std::int64_t sequences = 0, documents = 0, tokens = 0;
};

/// Writes a data set, byte for byte as Megatron does, in constant memory. Everything goes to temporary
/// files beside the target (PREFIX.bin.part and others); finalize() renames them, so nothing half-written
/// carries the final names. One builder at a time per prefix, over all processes. Throws ConfigError that
/// names
/// --output-prefix when another one has it, the disk is full or the folder cannot be written.
class IndexedDatasetBuilder {
 public:
  IndexedDatasetBuilder(const std::string& prefix, TokenType type, bool multimodal = false);
  /// Goes on behind `written` in the temporary files of a builder that was killed after sync() said so; what
  /// it wrote later is cut off. With `complete` it may have been killed in its finalize(). The temporary
  /// files stay unless keep_parts(false) is said. Throws DataError when one is gone or holds less, and
  /// touches nothing that carries a last name.
  IndexedDatasetBuilder(const std::string& prefix, TokenType type, const WrittenCounts& written,
                        bool complete);
  ~IndexedDatasetBuilder();
  IndexedDatasetBuilder(const IndexedDatasetBuilder&) = delete;
  IndexedDatasetBuilder& operator=(const IndexedDatasetBuilder&) = delete;

  /// Appends one sequence to the current document. `bytes` holds whole tokens of the data set's type.
  void add_sequence(std::span<const std::byte> bytes, std::int8_t mode = 0);
  /// Ends the current document; one without sequences stays as an empty document.
  void end_document();
  /// Appends one document of ids, cut into sequences of `lengths`. Throws DataError when an id does not
  /// fit the type.
  void add_document(std::span<const std::int32_t> ids, std::span<const std::int32_t> lengths);
  /// Appends a whole data set of the same type. Pages of `other` are let go on the way, every 64 MB, and
  /// `between` is called then: what it throws ends the work.
  void add_index(const IndexedDataset& other, const std::function<void()>& between = {});
  /// What was added is on the disk when it returns; the counts are all that is needed to go on from there.
  WrittenCounts sync();
  /// Whether the temporary files stay for another builder to go on with when this one ends without
  /// finalize().
  void keep_parts(bool keep);
  /// Writes the index and gives both files their names.
  void finalize();

  [[nodiscard]] std::int64_t num_documents() const { return num_document_starts_ - 1; }
  [[nodiscard]] std::int64_t num_tokens() const { return num_tokens_; }

 private:
  /// A buffered temporary file that is deleted unless it was renamed.
  class Part;

  [[nodiscard]] std::filesystem::path part_path(const char* what) const;
  void open_parts(const WrittenCounts& written, bool goes_on);
  void write_index(Part& out);

  std::string prefix_;
  TokenType type_;
  bool multimodal_;
  std::int64_t num_sequences_ = 0;
  std::int64_t num_document_starts_ = 1;
  std::int64_t num_tokens_ = 0;
  std::vector<std::byte> packed_;
  std::unique_ptr<Part> bin_, lengths_, documents_, modes_;
};

}  // namespace colonnade::data
