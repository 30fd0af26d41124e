// Encoding of JSON lines to token ids, chunk by chunk; the part of preprocessing that runs in parallel.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "colonnade/base/byte_semaphore.h"
#include "colonnade/corpus/text_reader.h"
#include "colonnade/preprocess/preprocess.h"

namespace colonnade::preprocess {

class Punkt;

/// Documents of one key in a chunk: ids of all, lengths of all sequences, number of sequences per document.
struct EncodedTexts {
  std::vector<std::int32_t> ids, lengths;
  std::vector<std::size_t> sequences;
};

struct EncodedChunk {
  std::vector<EncodedTexts> keys;
  std::vector<std::int64_t> document_lines;  ///< per document: index among the non-blank lines of the chunk
  std::int64_t lines = 0;                    ///< non-blank lines
  std::vector<std::string> skipped;          ///< "FILE line N: why" per skipped line
};

class ChunkTokenizer {
 public:
  /// Both arguments must outlive it. Throws DataError for an unreadable Punkt model.
  ChunkTokenizer(const PreprocessOptions& options, const tokenizers::Tokenizer& tokenizer);
  ~ChunkTokenizer();
  ChunkTokenizer(const ChunkTokenizer&) = delete;
  ChunkTokenizer& operator=(const ChunkTokenizer&) = delete;

  /// Thread-safe. Throws DataError naming the first unusable line, unless bad lines are skipped.
  [[nodiscard]] EncodedChunk encode(const std::string& file, const corpus::LineChunk& chunk) const;

 private:
  void add_text(std::string_view text, EncodedTexts& encoded) const;
  void encode_text(std::string_view text, EncodedTexts& encoded) const;

  const PreprocessOptions& options_;
  const tokenizers::Tokenizer& tokenizer_;
  std::unique_ptr<const Punkt> punkt_;
  mutable ByteSemaphore long_texts_;  // bounds memory: tokenizers need many times the size of their text
};

/// Number of non-blank lines.
std::int64_t count_lines(const corpus::LineChunk& chunk);

}  // namespace colonnade::preprocess
