// Megatron's indexed data sets: PREFIX.idx locates each sequence of tokens in PREFIX.bin.
//
// .idx, little-endian, nothing aligned (docs/formats/indexed_dataset.md):
//   "MMIDIDX\0\0", u64 version 1, u8 dtype code, u64 sequences S, u64 D = documents + 1,
//   i32 length in tokens [S], i64 byte offset in .bin [S], i64 first sequence of each document [D],
//   and, in multimodal data only, i8 mode [S].
// .bin: the tokens of all sequences, contiguous.
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

/// Token types, with their codes in the header.
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

/// Bytes per token; 0 for an unknown code.
std::int64_t item_size(TokenType type);
/// Name such as "uint16".
std::string to_string(TokenType type);
/// Token type of a vocabulary in Megatron's tools: uint16 below 65,500 ids, else int32.
TokenType token_type_for(std::int64_t vocab_size);

/// PREFIX.bin and PREFIX.idx; a suffix .bin or .idx of the prefix is replaced.
std::filesystem::path bin_path(const std::string& prefix);
std::filesystem::path idx_path(const std::string& prefix);

/// A memory-mapped data set. The constructor reads and checks the whole index: magic, version, type, counts
/// against the file size, lengths >= 0, byte offsets ascending and within .bin, size of .bin, document starts
/// ascending from 0 to the number of sequences.
class IndexedDataset final : public TokenSource {
 public:
  /// Throws DataError if a file is missing or a check fails. `multimodal` requires the modes.
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
  /// Mode of a sequence of multimodal data. Unchecked.
  [[nodiscard]] std::int8_t mode(std::int64_t sequence) const;

  /// Bytes of a sequence in .bin. Throws DataError for a number out of range.
  [[nodiscard]] std::span<const std::byte> raw(std::int64_t sequence) const;
  void tokens(std::int64_t sequence, std::int64_t offset, std::span<std::int64_t> out) const override;
  void prefetch(std::int64_t sequence, std::int64_t offset, std::int64_t count) const override;
  /// Releases the mapped pages from this process's memory; they are loaded again on access.
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

/// Amount of data that a builder has written.
struct WrittenCounts {
  std::int64_t sequences = 0, documents = 0, tokens = 0;
};

/// Writes a data set, byte-identical to Megatron's, in constant memory. Data go to temporary files next to
/// the target (PREFIX.bin.part and others); finalize() renames them, so the final names never refer to
/// incomplete files. Only one builder per prefix at a time, across all processes. Throws ConfigError naming
/// --output-prefix if another builder holds it, the disk is full or the folder is not writable.
class IndexedDatasetBuilder {
 public:
  IndexedDatasetBuilder(const std::string& prefix, TokenType type, bool multimodal = false);
  /// Resumes after `written`, the counts that sync() of a killed builder returned, from its temporary files;
  /// later data are truncated. With `complete` that builder may have been killed in finalize(). The temporary
  /// files are kept unless keep_part_files(false) is called. Throws DataError if one is missing or too short,
  /// without touching files with final names.
  IndexedDatasetBuilder(const std::string& prefix, TokenType type, const WrittenCounts& written,
                        bool complete);
  ~IndexedDatasetBuilder();
  IndexedDatasetBuilder(const IndexedDatasetBuilder&) = delete;
  IndexedDatasetBuilder& operator=(const IndexedDatasetBuilder&) = delete;

  /// Appends one sequence to the current document. `bytes` holds complete tokens of the data set's type.
  void add_sequence(std::span<const std::byte> bytes, std::int8_t mode = 0);
  /// Ends the current document; one without sequences becomes an empty document.
  void end_document();
  /// Appends one document of ids, split into sequences of `lengths`. Throws DataError if an id does not fit
  /// the type.
  void add_document(std::span<const std::int32_t> ids, std::span<const std::int32_t> lengths);
  /// Appends all documents of a data set of the same type. Every 64 MB the pages of `other` are released and
  /// `on_progress` is called, which may throw to cancel.
  void add_index(const IndexedDataset& other, const std::function<void()>& on_progress = {});
  /// Syncs all added data to disk and returns the counts from which a builder can resume.
  WrittenCounts sync();
  /// Whether a builder destroyed without finalize() keeps its temporary files for another one to resume from.
  void keep_part_files(bool keep);
  /// Writes the index and renames both files to their final names.
  void finalize();

  [[nodiscard]] std::int64_t num_documents() const { return num_document_starts_ - 1; }
  [[nodiscard]] std::int64_t num_tokens() const { return num_tokens_; }

 private:
  /// A buffered temporary file that is deleted unless it is renamed.
  class PartFile;

  [[nodiscard]] std::filesystem::path part_path(const char* what) const;
  void open_part_files(const WrittenCounts& written, bool resume);
  void write_index(PartFile& out);

  std::string prefix_;
  TokenType type_;
  bool multimodal_;
  std::int64_t num_sequences_ = 0;
  std::int64_t num_document_starts_ = 1;
  std::int64_t num_tokens_ = 0;
  std::vector<std::byte> packed_;
  std::unique_ptr<PartFile> bin_, lengths_, documents_, modes_;
};

}  // namespace colonnade::data
