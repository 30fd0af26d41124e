// Lines of JSON to token ids, chunk by chunk: the part of preprocessing that threads do side by side.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "colonnade/base/byte_gate.h"
#include "colonnade/corpus/text_reader.h"
#include "colonnade/preprocess/preprocess.h"

namespace colonnade::preprocess {

class Punkt;

/// The documents of one key in a chunk: ids of all, lengths of all sequences, sequences of each document.
struct EncodedTexts {
  std::vector<std::int32_t> ids, lengths;
  std::vector<std::size_t> sequences;
};

struct EncodedChunk {
  std::vector<EncodedTexts> keys;
  std::vector<std::int64_t> places;  ///< of each document among the lines
  std::int64_t lines = 0;            ///< that are not blank
  std::vector<std::string> bad;      ///< "FILE line N: why" of those that were skipped
};

class ChunkEncoder {
 public:
  /// Both live longer. Throws DataError for a folder of Punkt that cannot be read.
  ChunkEncoder(const PreprocessOptions& options, const tokenizers::Tokenizer& tokenizer);
  ~ChunkEncoder();
  ChunkEncoder(const ChunkEncoder&) = delete;
  ChunkEncoder& operator=(const ChunkEncoder&) = delete;

  /// Safe to call from many threads. Throws DataError that names the first line that cannot be used, unless
  /// they are skipped.
  [[nodiscard]] EncodedChunk encode(const std::string& file, const corpus::LineChunk& chunk) const;

 private:
  void add_text(std::string_view text, EncodedTexts& encoded) const;
  void encode_text(std::string_view text, EncodedTexts& encoded) const;

  const PreprocessOptions& options_;
  const tokenizers::Tokenizer& tokenizer_;
  std::unique_ptr<const Punkt> punkt_;
  mutable ByteGate long_texts_;  // tokenizers need many times the memory of their text
};

/// Lines that are not blank.
std::int64_t count_lines(const corpus::LineChunk& chunk);

}  // namespace colonnade::preprocess
