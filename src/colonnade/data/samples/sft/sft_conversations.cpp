// See sft_conversations.h.
#include "colonnade/data/samples/sft/sft_conversations.h"

#include <algorithm>
#include <deque>
#include <future>
#include <optional>
#include <thread>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/corpus/input_files.h"
#include "colonnade/corpus/text_reader.h"

namespace colonnade::data {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// Where places of a text lie in what its ids stand for, byte for byte.
class Places {
 public:
  /// A place, or, where the ids know no such border, the character of theirs that lies over it.
  struct Place {
    std::size_t begin = 0, end = 0;
  };

  /// `borders`: places in the text, ascending.
  Places(std::string_view text, const Ids& ids, const tokenizers::Tokenizer& tokenizer,
         std::vector<std::size_t> borders)
      : borders_(std::move(borders)), places_(borders_.size()) {
    for (const std::int32_t id : ids) {
      bytes_ += tokenizer.bytes_of(id);
      ends_.push_back(bytes_.size());
    }
    if (walk(text)) return;
    for (std::size_t i = 0; i < borders_.size(); ++i)
      places_[i] = encoded(text.substr(0, borders_[i]), tokenizer);
  }

  [[nodiscard]] Place of(std::size_t border) const {
    return places_[static_cast<std::size_t>(std::ranges::lower_bound(borders_, border) - borders_.begin())];
  }
  /// The bytes of token `i` begin and end here.
  [[nodiscard]] Place token(std::size_t i) const { return {i > 0 ? ends_[i - 1] : 0, ends_[i]}; }
  /// The first token that ends behind a place.
  [[nodiscard]] std::size_t token_at(std::size_t place) const {
    return static_cast<std::size_t>(std::ranges::upper_bound(ends_, place) - ends_.begin());
  }

 private:
  /// Goes through text and bytes from behind. They may differ by spaces that the tokenizer put in, which then
  /// belong to the character behind them, and by white space of the text that it left out, which belongs to
  /// no token. False: they differ otherwise.
  bool walk(std::string_view text) {
    std::size_t at = bytes_.size(), border = borders_.size();
    for (std::size_t i = text.size(); i > 0; --i) {
      while (at > 0 && bytes_[at - 1] != text[i - 1] && bytes_[at - 1] == ' ') --at;
      for (; border > 0 && borders_[border - 1] == i; --border) places_[border - 1] = {at, at};
      const bool same = at > 0 && bytes_[at - 1] == text[i - 1];
      if (!same && !is_blank(text[i - 1])) return false;
      at -= same ? 1 : 0;
    }
    return std::string_view(bytes_).substr(0, at).find_first_not_of(' ') == std::string_view::npos;
  }

  /// By the ids of the text before the border.
  [[nodiscard]] Place encoded(std::string_view before, const tokenizers::Tokenizer& tokenizer) const {
    std::string begin;
    for (const std::int32_t id : tokenizer.encode(before)) begin += tokenizer.bytes_of(id);
    const auto alike = static_cast<std::size_t>(std::ranges::mismatch(begin, bytes_).in1 - begin.begin());
    if (alike == begin.size() || alike == bytes_.size()) return {alike, alike};
    std::size_t place = alike;
    while (place > 0 && (static_cast<unsigned char>(bytes_[place]) & 0xC0U) == 0x80) --place;
    return {place, alike + 1};
  }

  std::vector<std::size_t> borders_;
  std::vector<Place> places_;
  std::string bytes_;
  std::vector<std::size_t> ends_;  // of each id, in bytes_
};

/// How many answers there are, and in how many of them nothing ends the turn.
struct AnswerCounts {
  std::int64_t all = 0, unended = 0;
};

/// Ids of a piece of a file and the lengths of its conversations.
struct Piece {
  Ids ids;
  std::vector<std::int64_t> lengths;
  AnswerCounts answers;
};

/// Of a line. Longer ones are no conversations, and tokenizers take many times the memory of their text.
constexpr std::size_t kLongest = std::size_t{1} << 24;
constexpr std::size_t kChunk = std::size_t{1} << 20;

class Reader {
 public:
  Reader(const fs::path& file, const tokenizers::Tokenizer& tokenizer,
         const chat_template::ChatTemplate& chat_template)
      : file_(file), tokenizer_(tokenizer), template_(chat_template) {}

  [[nodiscard]] Piece read(const corpus::LineChunk& chunk) const {
    Piece piece;
    std::int64_t line = chunk.begin.line;
    const auto check_length = [&](std::size_t bytes) {
      if (bytes > kLongest)
        throw DataError(fmt::format("{} {}: a conversation must have at most {} bytes; got {}; cut it",
                                    file_.string(), chunk.name_of(line), kLongest, bytes));
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
        piece.answers.all += std::ssize(chat.answers);
        piece.answers.unended += static_cast<std::int64_t>(chat.unended);
        piece.ids.insert(piece.ids.end(), ids.begin(), ids.end());
        piece.lengths.push_back(static_cast<std::int64_t>(ids.size()));
      } catch (const DataError& e) {
        throw DataError(fmt::format("{} {}: {}", file_.string(), chunk.name_of(line), e.what()));
      }
    }
    return piece;
  }

 private:
  fs::path file_;
  const tokenizers::Tokenizer& tokenizer_;
  const chat_template::ChatTemplate& template_;
};

/// Where ids and lengths go: into the files of a cache entry, or into memory where there is none.
class Written {
 public:
  explicit Written(const fs::path& staged) : staged_(staged) {
    if (staged_.empty()) return;
    id_file_.emplace(file("ids"), IntType::kInt32);
    start_file_.emplace(file("starts"), IntType::kInt64);
    start_file_->append(std::span<const std::int64_t>(starts_));
  }

  void add(const Piece& piece) {
    std::vector<std::int64_t> starts;
    for (const std::int64_t length : piece.lengths) starts.push_back(end_ += length);
    count_ += std::ssize(starts);
    answers_.all += piece.answers.all;
    answers_.unended += piece.answers.unended;
    if (id_file_) {
      id_file_->append(std::span(piece.ids));
      start_file_->append(std::span<const std::int64_t>(starts));
      return;
    }
    ids_.insert(ids_.end(), piece.ids.begin(), piece.ids.end());
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

/// Reads pieces of one file on several threads, and hands them on in their order. At most kInFlight bytes of
/// text are worked on at a time, or one line.
void read_file_of(const fs::path& file, const Reader& reader, Written& written) {
  constexpr std::size_t kInFlight = std::size_t{24} << 20;
  const std::size_t workers = std::clamp(std::thread::hardware_concurrency(), 1U, 16U);
  struct Working {
    std::size_t bytes;
    std::future<Piece> piece;
  };
  std::deque<Working> pieces;
  std::size_t in_flight = 0;
  const auto take = [&] {
    written.add(pieces.front().piece.get());
    in_flight -= pieces.front().bytes;
    pieces.pop_front();
  };
  const std::vector<std::string> members{"messages", "tools", "documents", "chat_template_kwargs"};
  corpus::LineReader lines(file, kChunk,
                           {.longest = kLongest, .columns = {.names = members, .texts_only = false}});
  for (corpus::LineChunk chunk; lines.next(chunk);) {
    const std::size_t bytes = chunk.text.size();
    while (!pieces.empty() && (pieces.size() >= workers || in_flight + bytes > kInFlight)) take();
    in_flight += bytes;
    pieces.push_back({bytes, std::async(std::launch::async,
                                        [&reader, chunk = std::move(chunk)] { return reader.read(chunk); })});
    chunk = {};
  }
  while (!pieces.empty()) take();
}

std::vector<IntArray> read_all(const std::string& path, const tokenizers::Tokenizer& tokenizer,
                               const chat_template::ChatTemplate& chat_template, const fs::path& staged) {
  Written written(staged);
  for (const fs::path& file : chat_files(path))
    read_file_of(file, Reader(file, tokenizer, chat_template), written);
  if (written.conversations() == 0)
    throw DataError(fmt::format("{} must hold a conversation; got none; check --data-path", path));
  return written.close();
}

}  // namespace

std::vector<std::int32_t> marked_ids(const chat_template::Chat& chat,
                                     const tokenizers::Tokenizer& tokenizer) {
  Ids ids = tokenizer.encode(chat.text);
  std::vector<std::size_t> borders;
  for (const chat_template::Span& answer : chat.answers)
    borders.insert(borders.end(), {answer.begin, answer.end});
  std::ranges::sort(borders);
  const Places places(chat.text, ids, tokenizer, std::move(borders));
  for (const chat_template::Span& answer : chat.answers) {
    const std::size_t begin = places.of(answer.begin).begin, end = places.of(answer.end).end;
    for (std::size_t i = places.token_at(begin); i < ids.size() && places.token(i).begin < end; ++i)
      if (ids[i] >= 0) ids[i] = ~ids[i];
  }
  return ids;
}

void warn_of_unended_answers(const std::string& where, std::int64_t answers, std::int64_t unended) {
  if (unended > 0)
    log::warning(
        "{}: {} of {} answers end without a token that ends the turn: the model does not learn to stop behind "
        "them; let the chat template write one behind answers, as {{{{ eos_token }}}}, within the marks of "
        "{{% generation %}} where it has them",
        where, unended, answers);
}

std::vector<fs::path> chat_files(const std::string& path) {
  std::error_code unknown;
  const fs::file_status status = fs::status(path, unknown);
  if (status.type() == fs::file_type::none) throw unreadable(path, unknown);
  if (!fs::is_directory(status)) {
    if (!fs::is_regular_file(status))
      throw DataError(fmt::format(
          "{}: with --sft data must be a file of chat messages, or a folder with .jsonl or .parquet files; got none there; check "
          "--data-path",
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
                             const std::string& identity)
    : path_(path) {
  const auto arrays = cache.get_written(
      fmt::format("{} (conversations)", path),
      CacheKey{.kind = "conversations", .description = "Conversations, version 3\n" + identity},
      {"ids", "starts", "answers"},
      [&](const fs::path& staged) { return read_all(path, tokenizer, chat_template, staged); });
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
    throw DataError(fmt::format("{}: conversation {} has {} tokens; asked for {} from {}; delete the cache",
                                path_, sequence, length(sequence), size, offset));
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t id = ids_[begin + i];
    out[static_cast<std::size_t>(i)] =
        (id < 0 ? ~id | kAnswerToken : id) | (offset + i == 0 ? kFirstToken : 0);
  }
}

}  // namespace colonnade::data
