// See sft_conversations.h.
#include "colonnade/data/samples/sft/sft_conversations.h"

#include <algorithm>
#include <deque>
#include <future>
#include <optional>
#include <thread>

#include "colonnade/base/error.h"
#include "colonnade/base/fault_text.h"
#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/corpus/input_files.h"
#include "colonnade/corpus/text_reader.h"

namespace colonnade::data {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// Maps positions of a text to byte offsets in the decoded ids.
class OffsetMap {
 public:
  /// A byte offset (begin == end), or the range of the decoded character that contains the boundary.
  struct Bytes {
    std::size_t begin = 0, end = 0;
  };

  /// `boundaries` are ascending positions in the text.
  OffsetMap(std::string_view text, const Ids& ids, const tokenizers::Tokenizer& tokenizer,
            std::vector<std::size_t> boundaries)
      : boundaries_(std::move(boundaries)), mapped_(boundaries_.size()) {
    for (const std::int32_t id : ids) {
      bytes_ += tokenizer.bytes_of(id);
      ends_.push_back(bytes_.size());
    }
    if (align(text)) return;
    for (std::size_t i = 0; i < boundaries_.size(); ++i)
      mapped_[i] = encode_prefix(text.substr(0, boundaries_[i]), tokenizer);
  }

  [[nodiscard]] Bytes of(std::size_t boundary) const {
    return mapped_[static_cast<std::size_t>(std::ranges::lower_bound(boundaries_, boundary) -
                                            boundaries_.begin())];
  }
  /// Byte range of token `i`.
  [[nodiscard]] Bytes token(std::size_t i) const { return {i > 0 ? ends_[i - 1] : 0, ends_[i]}; }
  /// The first token that ends after a byte offset.
  [[nodiscard]] std::size_t token_at(std::size_t offset) const {
    return static_cast<std::size_t>(std::ranges::upper_bound(ends_, offset) - ends_.begin());
  }

 private:
  /// Aligns text and bytes from the end. They may differ by spaces that the tokenizer inserted, which belong
  /// to the character after them, and by white space that it dropped, which belongs to no token. Returns
  /// false if they differ otherwise.
  bool align(std::string_view text) {
    std::size_t at = bytes_.size(), boundary = boundaries_.size();
    for (std::size_t i = text.size(); i > 0; --i) {
      while (at > 0 && bytes_[at - 1] != text[i - 1] && bytes_[at - 1] == ' ') --at;
      for (; boundary > 0 && boundaries_[boundary - 1] == i; --boundary) mapped_[boundary - 1] = {at, at};
      const bool same = at > 0 && bytes_[at - 1] == text[i - 1];
      if (!same && !is_blank(text[i - 1])) return false;
      at -= same ? 1 : 0;
    }
    return std::string_view(bytes_).substr(0, at).find_first_not_of(' ') == std::string_view::npos;
  }

  /// Locates a boundary by encoding the text before it.
  [[nodiscard]] Bytes encode_prefix(std::string_view prefix, const tokenizers::Tokenizer& tokenizer) const {
    std::string decoded;
    for (const std::int32_t id : tokenizer.encode(prefix)) decoded += tokenizer.bytes_of(id);
    const auto common =
        static_cast<std::size_t>(std::ranges::mismatch(decoded, bytes_).in1 - decoded.begin());
    if (common == decoded.size() || common == bytes_.size()) return {common, common};
    std::size_t begin = common;
    while (begin > 0 && (static_cast<unsigned char>(bytes_[begin]) & 0xC0U) == 0x80) --begin;
    return {begin, common + 1};
  }

  std::vector<std::size_t> boundaries_;
  std::vector<Bytes> mapped_;
  std::string bytes_;
  std::vector<std::size_t> ends_;  // end of each id in bytes_
};

/// Number of answers, and of those without a token that ends the turn.
struct AnswerCounts {
  std::int64_t all = 0, unended = 0;
};

/// Encoded conversations of a chunk of a file.
struct EncodedChunk {
  Ids ids;
  std::vector<std::int64_t> lengths;
  AnswerCounts answers;
};

/// Maximum bytes of a line. Longer ones are no conversations, and tokenizers take many times the memory of
/// the text.
constexpr std::size_t kMaxLine = std::size_t{1} << 24;
constexpr std::size_t kChunk = std::size_t{1} << 20;

class ConversationTokenizer {
 public:
  ConversationTokenizer(const fs::path& file, const tokenizers::Tokenizer& tokenizer,
                        const chat_template::ChatTemplate& chat_template)
      : file_(file), tokenizer_(tokenizer), template_(chat_template) {}

  [[nodiscard]] EncodedChunk encode(const corpus::LineChunk& chunk) const {
    EncodedChunk encoded;
    std::int64_t line = chunk.begin.line;
    const auto check_length = [&](std::size_t bytes) {
      if (bytes > kMaxLine)
        throw DataError(fmt::format("{} {}: a conversation must have at most {} bytes; got {}; shorten it",
                                    file_.string(), chunk.name_of(line), kMaxLine, bytes));
    };
    check_length(static_cast<std::size_t>(chunk.too_long));
    for (std::size_t at = 0; at < chunk.text.size(); ++line) {
      const std::size_t end = std::min(chunk.text.find('\n', at), chunk.text.size());
      const std::string_view text = std::string_view(chunk.text).substr(at, end - at);
      at = end + 1;
      check_length(text.size());
      if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      try {
        const chat_template::Chat chat = template_.chat(chat_template::read_conversation(text));
        const Ids ids = marked_ids(chat, tokenizer_);
        encoded.answers.all += std::ssize(chat.answers);
        encoded.answers.unended += static_cast<std::int64_t>(chat.unended);
        encoded.ids.insert(encoded.ids.end(), ids.begin(), ids.end());
        encoded.lengths.push_back(static_cast<std::int64_t>(ids.size()));
      } catch (const DataError& e) {
        throw DataError(fault_text(file_.string() + " " + chunk.name_of(line), e.what()));
      }
    }
    return encoded;
  }

 private:
  fs::path file_;
  const tokenizers::Tokenizer& tokenizer_;
  const chat_template::ChatTemplate& template_;
};

/// Collects ids and lengths in the files of a cache entry, or in memory without one.
class ConversationWriter {
 public:
  explicit ConversationWriter(const fs::path& staged) : staged_(staged) {
    if (staged_.empty()) return;
    id_file_.emplace(file("ids"), IntType::kInt32);
    start_file_.emplace(file("starts"), IntType::kInt64);
    start_file_->append(std::span<const std::int64_t>(starts_));
  }

  void add(const EncodedChunk& chunk) {
    std::vector<std::int64_t> starts;
    for (const std::int64_t length : chunk.lengths) starts.push_back(end_ += length);
    count_ += std::ssize(starts);
    answers_.all += chunk.answers.all;
    answers_.unended += chunk.answers.unended;
    if (id_file_) {
      id_file_->append(std::span(chunk.ids));
      start_file_->append(std::span<const std::int64_t>(starts));
      return;
    }
    ids_.insert(ids_.end(), chunk.ids.begin(), chunk.ids.end());
    starts_.insert(starts_.end(), starts.begin(), starts.end());
  }
  [[nodiscard]] std::int64_t conversations() const { return count_; }

  std::vector<IntArray> close() {
    IntArray answers(std::vector<std::int64_t>{answers_.all, answers_.unended});
    if (!id_file_) return {IntArray(std::move(ids_)), IntArray(std::move(starts_)), std::move(answers)};
    id_file_->close();
    start_file_->close();
    return {IntArray::map(file("ids")), IntArray::map(file("starts")), std::move(answers)};
  }

 private:
  [[nodiscard]] fs::path file(const char* name) const { return staged_ / (std::string(name) + ".npy"); }

  fs::path staged_;
  std::int64_t end_ = 0, count_ = 0;
  AnswerCounts answers_;
  Ids ids_;
  std::vector<std::int64_t> starts_{0};
  std::optional<IntWriter> id_file_, start_file_;
};

/// Encodes chunks of one file on several threads and writes them in order. At most kInFlight bytes of text,
/// or one line, are in flight at a time.
void encode_file(const fs::path& file, const ConversationTokenizer& tokenizer, ConversationWriter& writer) {
  constexpr std::size_t kInFlight = std::size_t{24} << 20;
  const std::size_t workers = std::clamp(std::thread::hardware_concurrency(), 1U, 16U);
  struct InFlight {
    std::size_t bytes;
    std::future<EncodedChunk> encoded;
  };
  std::deque<InFlight> chunks;
  std::size_t in_flight = 0;
  const auto write_front = [&] {
    writer.add(chunks.front().encoded.get());
    in_flight -= chunks.front().bytes;
    chunks.pop_front();
  };
  const std::vector<std::string> members{"messages", "tools", "documents", "chat_template_kwargs"};
  corpus::LineReader lines(file, kChunk,
                           {.longest = kMaxLine, .columns = {.names = members, .texts_only = false}});
  for (corpus::LineChunk chunk; lines.next(chunk);) {
    const std::size_t bytes = chunk.text.size();
    while (!chunks.empty() && (chunks.size() >= workers || in_flight + bytes > kInFlight)) write_front();
    in_flight += bytes;
    chunks.push_back({bytes, std::async(std::launch::async, [&tokenizer, chunk = std::move(chunk)] {
                        return tokenizer.encode(chunk);
                      })});
    chunk = {};
  }
  while (!chunks.empty()) write_front();
}

std::vector<IntArray> encode_all(const std::string& path, const tokenizers::Tokenizer& tokenizer,
                                 const chat_template::ChatTemplate& chat_template, const fs::path& staged) {
  ConversationWriter writer(staged);
  for (const fs::path& file : chat_files(path))
    encode_file(file, ConversationTokenizer(file, tokenizer, chat_template), writer);
  if (writer.conversations() == 0)
    throw DataError(fmt::format("{} must hold a conversation; got none; check --data-path", path));
  return writer.close();
}

}  // namespace

std::vector<std::int32_t> marked_ids(const chat_template::Chat& chat,
                                     const tokenizers::Tokenizer& tokenizer) {
  Ids ids = tokenizer.encode(chat.text);
  std::vector<std::size_t> boundaries;
  for (const chat_template::Span& answer : chat.answers)
    boundaries.insert(boundaries.end(), {answer.begin, answer.end});
  std::ranges::sort(boundaries);
  const OffsetMap offsets(chat.text, ids, tokenizer, std::move(boundaries));
  for (const chat_template::Span& answer : chat.answers) {
    const std::size_t begin = offsets.of(answer.begin).begin, end = offsets.of(answer.end).end;
    for (std::size_t i = offsets.token_at(begin); i < ids.size() && offsets.token(i).begin < end; ++i)
      if (ids[i] >= 0) ids[i] = ~ids[i];
  }
  return ids;
}

void warn_of_unended_answers(const std::string& where, std::int64_t answers, std::int64_t unended) {
  if (unended > 0)
    log::warning(
        "{}: {} of {} answers end without a token that ends the turn: the model does not learn to stop after them; let "
        "the chat template write one after answers, as {{{{ eos_token }}}}, inside {{% generation %}} if it has such "
        "blocks",
        where, unended, answers);
}

std::vector<fs::path> chat_files(const std::string& path) {
  std::error_code unknown;
  const fs::file_status status = fs::status(path, unknown);
  if (status.type() == fs::file_type::none) throw unreadable(path, unknown);
  if (!fs::is_directory(status)) {
    if (!fs::is_regular_file(status))
      throw DataError(fmt::format(
          "{}: with --sft data must be a file of chat messages, or a folder of .jsonl or .parquet files; got neither; "
          "check --data-path",
          path));
    return {path};
  }
  std::vector<fs::path> files = corpus::line_files_in(path);
  if (files.empty())
    throw DataError(fmt::format(
        "{}: the folder must hold .jsonl, .jsonl.gz, .jsonl.zst or .parquet files; got none; check --data-path",
        path));
  return files;
}

Conversations::Conversations(const std::string& path, const tokenizers::Tokenizer& tokenizer,
                             const chat_template::ChatTemplate& chat_template, const IndexCache& cache,
                             const std::string& fingerprint)
    : path_(path) {
  const auto arrays = cache.get_streamed(
      fmt::format("{} (conversations)", path),
      CacheKey{.kind = "conversations", .description = "Conversations, version 3\n" + fingerprint},
      {"ids", "starts", "answers"},
      [&](const fs::path& staged) { return encode_all(path, tokenizer, chat_template, staged); });
  ids_ = arrays[0];
  starts_ = arrays[1];
  if (starts_.rows() < 1 || starts_[starts_.rows() - 1] != ids_.rows())
    throw DataError(fmt::format("{}: the index cache must fit the data; got {} ids; delete the cache", path_,
                                ids_.rows()));
  if (arrays[2].rows() == 2) warn_of_unended_answers(path_, arrays[2][0], arrays[2][1]);
}

void Conversations::tokens(std::int64_t sequence, std::int64_t offset, std::span<std::int64_t> out) const {
  const std::int64_t begin = starts_[sequence] + offset;
  const auto size = static_cast<std::int64_t>(out.size());
  if (offset < 0 || begin < 0 || begin + size > starts_[sequence + 1] || begin + size > ids_.rows())
    throw DataError(
        fmt::format("{}: conversation {} has {} tokens; got a request for {} from {}; delete the cache",
                    path_, sequence, length(sequence), size, offset));
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t id = ids_[begin + i];
    out[static_cast<std::size_t>(i)] =
        (id < 0 ? ~id | kAnswerToken : id) | (offset + i == 0 ? kFirstToken : 0);
  }
}

}  // namespace colonnade::data
