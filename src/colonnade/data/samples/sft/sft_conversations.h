// Conversations of jsonl and Parquet files as token ids, each told whether it belongs to an answer.
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

/// What stands beside the id (the low 32 bits) of a token.
constexpr std::int64_t kAnswerToken = std::int64_t{1} << 32;  ///< its loss counts
constexpr std::int64_t kFirstToken = std::int64_t{1} << 33;   ///< a conversation begins here
constexpr std::int64_t id_of(std::int64_t token) { return token & 0xffffffff; }

/// The ids of a chat's text as a whole, without special ones around it; those of tokens that overlap an
/// answer as ~id. Exact where what the ids stand for (Tokenizer::bytes_of) is the text but for spaces that
/// the tokenizer puts in front of words, which belong to the character behind them, and white space that it
/// leaves out: byte-level BPE, SentencePiece of known characters. Other texts (changed by a normalizer,
/// unknown characters) are encoded up to each border once more: a character that the ids have otherwise there
/// lies over the border, and unknown characters over a border that are one token belong to what comes first.
std::vector<std::int32_t> marked_ids(const chat_template::Chat& chat, const tokenizers::Tokenizer& tokenizer);

/// Warns of answers that teach no end (Chat::unended). `where`: the data.
void warn_of_unended_answers(const std::string& where, std::int64_t answers, std::int64_t unended);

/// The .jsonl (also .jsonl.gz, .jsonl.zst) and .parquet files that `path` stands for: itself, or those in the
/// folder in the order of their names. Throws DataError where there is none.
std::vector<std::filesystem::path> chat_files(const std::string& path);

/// Sequences are conversations: the lines or rows of chat_files(path), empty ones passed over, of at most 16
/// MB. Memory: ids are written into the cache piece by piece and mapped from there; without one they lie in
/// memory.
class Conversations final : public TokenSource {
 public:
  /// `identity` tells this state of files, tokenizer and template. Throws DataError that names file and line
  /// of the first line that cannot be used.
  Conversations(const std::string& path, const tokenizers::Tokenizer& tokenizer,
                const chat_template::ChatTemplate& chat_template, const IndexCache& cache,
                const std::string& identity);

  [[nodiscard]] std::int64_t num_sequences() const override { return starts_.rows() - 1; }
  [[nodiscard]] std::int64_t length(std::int64_t sequence) const override {
    return starts_[sequence + 1] - starts_[sequence];
  }
  /// Ids with kAnswerToken and kFirstToken.
  void tokens(std::int64_t sequence, std::int64_t offset, std::span<std::int64_t> out) const override;
  [[nodiscard]] std::string name() const override { return path_; }

 private:
  std::string path_;
  IntArray ids_, starts_;
};

}  // namespace colonnade::data
