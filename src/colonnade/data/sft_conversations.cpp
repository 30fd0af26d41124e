// See sft_conversations.h.
#include "colonnade/data/sft_conversations.h"

#include <algorithm>
#include <future>
#include <thread>

#include "colonnade/base/error.h"
#include "colonnade/data/text_reader.h"

namespace colonnade::data {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

/// Finds where bytes of a text lie among its ids.
class Borders {
 public:
  Borders(std::string_view text, const Ids& ids, const Tokenizer& tokenizer)
      : text_(text), ids_(ids), tokenizer_(tokenizer) {}

  struct Border {
    std::size_t token = 0;  ///< the first one that does not lie before the byte as a whole
    bool exact = false;     ///< it begins at the byte
  };

  /// Bytes must ascend from call to call.
  Border at(std::size_t byte) {
    if (byte == text_.size()) return {ids_.size(), true};
    const Ids next = tokenizer_.encode(text_.substr(byte_, byte - byte_));
    const auto from = ids_.begin() + static_cast<std::ptrdiff_t>(token_);
    const bool goes_on = std::ranges::mismatch(next.begin(), next.end(), from, ids_.end()).in1 == next.end();
    if (byte_ == 0 || !goes_on) {
      const Ids begin = tokenizer_.encode(text_.substr(0, byte));
      const auto differs = std::ranges::mismatch(begin, ids_);
      const auto token = static_cast<std::size_t>(differs.in1 - begin.begin());
      if (differs.in1 != begin.end()) return {token, false};
      token_ = token;
    } else {
      token_ += next.size();
    }
    byte_ = byte;
    return {token_, true};
  }

 private:
  std::string_view text_;
  const Ids& ids_;
  const Tokenizer& tokenizer_;
  std::size_t byte_ = 0, token_ = 0;  // the last exact border
};

/// Ids of a piece of a file and the lengths of its conversations.
struct Piece {
  Ids ids;
  std::vector<std::int64_t> lengths;
};

constexpr std::size_t kLongest = std::size_t{1} << 28;

class Reader {
 public:
  Reader(const fs::path& file, const Tokenizer& tokenizer, const chat::ChatTemplate& chat_template)
      : file_(file), tokenizer_(tokenizer), template_(chat_template) {}

  [[nodiscard]] Piece read(const LineChunk& chunk) const {
    Piece piece;
    std::int64_t line = chunk.begin.line;
    if (chunk.too_long > 0)
      throw DataError(fmt::format("{} line {}: a conversation must have at most {} bytes; got {}; cut it",
                                  file_.string(), line, kLongest, chunk.too_long));
    for (std::size_t at = 0; at < chunk.text.size(); ++line) {
      const std::size_t end = std::min(chunk.text.find('\n', at), chunk.text.size());
      const std::string_view text = std::string_view(chunk.text).substr(at, end - at);
      at = end + 1;
      if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      try {
        const Ids ids = marked_ids(template_.chat(chat::read_conversation(text)), tokenizer_);
        piece.ids.insert(piece.ids.end(), ids.begin(), ids.end());
        piece.lengths.push_back(static_cast<std::int64_t>(ids.size()));
      } catch (const DataError& e) {
        throw DataError(fmt::format("{} line {}: {}", file_.string(), line, e.what()));
      }
    }
    return piece;
  }

 private:
  fs::path file_;
  const Tokenizer& tokenizer_;
  const chat::ChatTemplate& template_;
};

std::vector<IntArray> read_all(const std::string& path, const Tokenizer& tokenizer,
                               const chat::ChatTemplate& chat_template) {
  constexpr std::size_t kChunk = std::size_t{1} << 20;
  const std::size_t workers = std::clamp(std::thread::hardware_concurrency(), 1U, 16U);
  Ids ids;
  std::vector<std::int64_t> starts{0};
  for (const fs::path& file : chat_files(path)) {
    const Reader reader(file, tokenizer, chat_template);
    LineReader lines(file, kChunk, kLongest);
    for (bool more = true; more;) {
      std::vector<std::future<Piece>> pieces;
      for (LineChunk chunk; pieces.size() < workers && (more = lines.next(chunk));)
        pieces.push_back(std::async(std::launch::async,
                                    [&reader, chunk = std::move(chunk)] { return reader.read(chunk); }));
      for (auto& each : pieces) {
        const Piece piece = each.get();
        ids.insert(ids.end(), piece.ids.begin(), piece.ids.end());
        for (const std::int64_t length : piece.lengths) starts.push_back(starts.back() + length);
      }
    }
  }
  if (starts.size() == 1)
    throw DataError(fmt::format("{}: must hold a conversation; got none; check --data-path", path));
  return {IntArray(std::move(ids)), IntArray(std::move(starts))};
}

bool is_chat_file(const fs::path& file) {
  const std::string name = file.filename().string();
  return name.ends_with(".jsonl") || name.ends_with(".jsonl.gz") || name.ends_with(".jsonl.zst");
}

}  // namespace

std::vector<std::int32_t> marked_ids(const chat::Chat& chat, const Tokenizer& tokenizer) {
  Ids ids = tokenizer.encode(chat.text);
  const Ids plain = ids;
  Borders borders(chat.text, plain, tokenizer);
  for (const chat::Span& answer : chat.answers) {
    const std::size_t first = borders.at(answer.begin).token;
    const auto end = borders.at(answer.end);
    const std::size_t last = std::min(end.token + (end.exact ? 0 : 1), ids.size());
    for (std::size_t i = first; i < last; ++i) ids[i] = ~plain[i];
  }
  return ids;
}

std::vector<fs::path> chat_files(const std::string& path) {
  if (!fs::is_directory(path)) {
    if (!fs::is_regular_file(path))
      throw DataError(fmt::format(
          "{}: with --sft data must be a file of chat messages, or a folder with .jsonl files; got none there; check "
          "--data-path",
          path));
    return {path};
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.is_regular_file() && is_chat_file(entry.path())) files.push_back(entry.path());
  if (files.empty())
    throw DataError(fmt::format(
        "{}: the folder must hold .jsonl, .jsonl.gz or .jsonl.zst files; got none; check --data-path", path));
  std::ranges::sort(files);
  return files;
}

Conversations::Conversations(const std::string& path, const Tokenizer& tokenizer,
                             const chat::ChatTemplate& chat_template, const IndexCache& cache,
                             const std::string& identity)
    : path_(path) {
  const auto arrays =
      cache.get(fmt::format("{} (conversations)", path), "Conversations, version 1\n" + identity,
                {"ids", "starts"}, [&] { return read_all(path, tokenizer, chat_template); });
  ids_ = arrays[0];
  starts_ = arrays[1];
  if (starts_.rows() < 1 || starts_[starts_.rows() - 1] != ids_.rows())
    throw DataError(fmt::format("{}: the index cache must fit the data; got {} ids; delete the cache", path_,
                                ids_.rows()));
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
