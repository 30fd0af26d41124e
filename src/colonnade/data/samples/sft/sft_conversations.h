// Conversations of JSONL and Parquet files as token ids, with flags for the tokens of answers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "colonnade/chat_template/chat_template.h"
#include "colonnade/data/index_cache.h"
#include "colonnade/data/indexed/token_source.h"
#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::data {

/// Flags above the id (the low 32 bits) of a token.
constexpr std::int64_t kAnswerToken = std::int64_t{1} << 32;  ///< has a loss as a label
constexpr std::int64_t kFirstToken = std::int64_t{1} << 33;   ///< starts a conversation
constexpr std::int64_t id_of(std::int64_t token) { return token & 0xffffffff; }

/// Ids of the whole text of a chat, without special tokens around it; ids of tokens that overlap an answer
/// are stored as ~id. Exact if the decoded ids (Tokenizer::bytes_of) equal the text, except for spaces that
/// the tokenizer inserts before words, which belong to the character after them, and white space that it
/// drops: byte-level BPE, and SentencePiece without unknown characters. Otherwise (normalizers, unknown
/// characters) each prefix up to a boundary is encoded separately: a decoded character that differs there
/// spans the boundary, and unknown characters on both sides that share a token belong to the first side.
std::vector<std::int32_t> marked_ids(const chat_template::Chat& chat, const tokenizers::Tokenizer& tokenizer);

/// Warns of answers that do not teach the model to stop (Chat::unended). `where` names the data.
void warn_of_unended_answers(const std::string& where, std::int64_t answers, std::int64_t unended);

/// The .jsonl (also .jsonl.gz, .jsonl.zst) and .parquet files at `path`: the file itself, or those of the
/// folder sorted by name. Throws DataError if there is none.
std::vector<std::filesystem::path> chat_files(const std::string& path);

/// Sequences are conversations: the non-empty lines or rows of chat_files(path), at most 16 MB each. Memory:
/// ids are streamed into the cache and mapped from there; without a cache they are held in memory.
class Conversations final : public TokenSource {
 public:
  /// `fingerprint` identifies the state of files, tokenizer and template. Throws DataError with file and line
  /// of the first unusable line.
  Conversations(const std::string& path, const tokenizers::Tokenizer& tokenizer,
                const chat_template::ChatTemplate& chat_template, const IndexCache& cache,
                const std::string& fingerprint);

  [[nodiscard]] std::int64_t num_sequences() const override { return starts_.rows() - 1; }
  [[nodiscard]] std::int64_t length(std::int64_t sequence) const override {
    return starts_[sequence + 1] - starts_[sequence];
  }
  /// Ids with the flags kAnswerToken and kFirstToken.
  void tokens(std::int64_t sequence, std::int64_t offset, std::span<std::int64_t> out) const override;
  [[nodiscard]] std::string name() const override { return path_; }

 private:
  std::string path_;
  IntArray ids_, starts_;
};

}  // namespace colonnade::data
