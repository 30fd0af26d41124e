// See sentencepiece_tokenizer.h. The only file that includes SentencePiece's headers.
#include "colonnade/tokenizers/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <charconv>
#include <exception>
#include <filesystem>
#include <unordered_map>

#include "colonnade/base/byte_semaphore.h"
#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/reason.h"
#include "colonnade/tokenizers/decoder.h"
#include "colonnade/tokenizers/json_view.h"
#include "colonnade/tokenizers/normalizer.h"
#include "colonnade/tokenizers/sentencepiece_chunks.h"
#include "colonnade/tokenizers/unigram.h"

namespace colonnade::tokenizers {
namespace {

namespace fs = std::filesystem;

bool has_key(const JsonView& json, std::string_view key) {
  return json.object()[key].error() == simdjson::SUCCESS;
}

/// Whether Transformers 5 adds the bos to texts: as add_bos_token says, which defaults to true for Code
/// Llama's class.
bool adds_bos(const JsonView& config) {
  const std::string name = config.text("tokenizer_class", "");
  if (name == "SentencePieceBackend") return false;
  return config.boolean("add_bos_token",
                        name.starts_with("CodeLlamaTokenizer") && !has_key(config, "add_bos_token"));
}

class SentencePiece final : public Tokenizer {
 public:
  explicit SentencePiece(const fs::path& path) : path_(path.string()) {
    if (!fs::is_regular_file(path))
      throw DataError(fmt::format("{} must be a SentencePiece .model file; got {}; check --tokenizer-model",
                                  path_, fs::exists(path) ? "a folder" : "no such file"));
    const std::string model = read_file(path);
    const auto status = processor_.LoadFromSerializedProto(model);
    if (!status.ok())
      throw DataError(
          fmt::format("{} must be a SentencePiece .model file; got '{}'; copy it again or train one with "
                      "`colonnade tokenizer train`",
                      path_, reason_in(status.message(), "a damaged one")));
    unigram_ = SentencePieceUnigram::read(model);
    boundaries_.emplace(model, unigram_.has_value());
    mark_id_ = processor_.PieceToId({kMetaspace.data(), kMetaspace.size()});
  }

  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    std::string normalized;
    const auto add = [&](std::string_view chunk, bool adds_mark) {
      if (!unigram_) {
        const std::vector<int> own = encoded<int>(chunk);
        const bool skip = adds_mark && !own.empty() && own.front() == mark_id_;
        ids.insert(ids.end(), own.begin() + (skip ? 1 : 0), own.end());
        return;
      }
      // The library normalizes; ties between segmentations are broken here.
      const std::string own = unigram_->join(encoded<std::string>(chunk));
      normalized.append(own, adds_mark && own.starts_with(kMetaspace) ? kMetaspace.size() : 0);
    };
    bool adds_mark = false;
    while (text.size() > kChunk) {
      const ChunkBoundaries::Boundary boundary = boundaries_->next(text, kChunk);
      if (boundary.end == text.size()) break;
      add_chunk(text.substr(0, boundary.end), adds_mark, add);
      text.remove_prefix(boundary.begin);
      adds_mark = boundary.adds_mark;
    }
    add_chunk(text, adds_mark, add);
    return unigram_ ? unigram_->encode(normalized) : ids;
  }

  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override {
    for (const std::int32_t id : ids)
      if (id < 0 || id >= vocab_size())
        throw DataError(fmt::format("{}: ids must be 0 to {}; got {}; use the tokenizer that gave the ids",
                                    path_, vocab_size() - 1, id));
    std::string text;
    const auto status = processor_.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
    if (!status.ok())
      throw DataError(
          fmt::format("{} must decode the ids; got '{}'; check them", path_, reason_in(status.message())));
    return text;
  }

  [[nodiscard]] std::string bytes_of(std::int32_t id) const override {
    const std::string& piece = processor_.IdToPiece(id);
    if (const int byte = byte_of_token(piece); byte >= 0) return std::string(1, static_cast<char>(byte));
    return replace_all(piece, kMetaspace, " ");
  }

  [[nodiscard]] std::int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  [[nodiscard]] SpecialIds special() const override {
    return {processor_.bos_id(), processor_.eos_id(), processor_.unk_id(), processor_.pad_id()};
  }
  [[nodiscard]] std::int32_t id_of(std::string_view piece) const override {
    const int id = processor_.PieceToId({piece.data(), piece.size()});  // the unknown id for other pieces
    return processor_.IdToPiece(id) == piece ? id : -1;
  }
  [[nodiscard]] std::string piece_of(std::int32_t id) const override {
    return id >= 0 && id < processor_.GetPieceSize() ? processor_.IdToPiece(id) : std::string();
  }
  [[nodiscard]] std::int32_t eod() const override { return processor_.eos_id(); }
  [[nodiscard]] std::vector<std::int32_t> encode_with_bos(std::string_view text) const override {
    std::vector<std::int32_t> ids = encode(text);
    if (prompt_bos_ >= 0) ids.insert(ids.begin(), prompt_bos_);
    return ids;
  }

  /// Sets the bos of prompts by the tokenizer_config.json of a folder.
  void set_prompt_bos(const JsonView& config) {
    if (!adds_bos(config)) return;
    const auto bos = config.find("bos_token");
    if (bos)
      prompt_bos_ = id_of(bos->is_text() ? bos->text() : bos->text("content"));
    else if (!has_key(config, "bos_token"))
      prompt_bos_ = processor_.bos_id();
  }

 private:
  // The library needs up to 270 bytes of memory per byte of normalized text.
  static constexpr std::size_t kChunk = std::size_t{1} << 13, kMaxChunk = std::size_t{2} << 20;

  template <typename Add>
  void add_chunk(std::string_view chunk, bool adds_mark, const Add& add) const {
    const std::size_t size = chunk.size() > 2 * kChunk ? boundaries_->normalized_size(chunk)
                                                       : boundaries_->max_normalized_size(chunk);
    if (size > kMaxChunk)
      throw DataError(fmt::format(
          "{}: text without a boundary to split at, such as a space, must have at most {} bytes once it is "
          "normalized; got {}; split the document",
          path_, kMaxChunk, size));
    const ByteSemaphore::Guard inside(gate_, static_cast<std::int64_t>(size));
    add(chunk, adds_mark);
  }

  /// The ids (int) or texts (std::string) of the pieces.
  template <typename Piece>
  [[nodiscard]] std::vector<Piece> encoded(std::string_view text) const {
    std::vector<Piece> pieces;
    const auto status = processor_.Encode({text.data(), text.size()}, &pieces);
    if (!status.ok())
      throw DataError(
          fmt::format("{} must encode the text; got '{}'; check it", path_, reason_in(status.message())));
    return pieces;
  }

  std::string path_;
  sentencepiece::SentencePieceProcessor processor_;
  std::optional<SentencePieceUnigram> unigram_;
  std::optional<ChunkBoundaries> boundaries_;
  mutable ByteSemaphore gate_{kMaxChunk};  ///< bytes in work over all threads
  std::int32_t mark_id_ = -1;              ///< id of the piece for a space
  std::int32_t prompt_bos_ = -1;           ///< bos of prompts; -1 if there is none
};

constexpr std::size_t kMaxLineBytes = 1'000'000;

/// Iterates over the nonempty lines for the trainer. Exceptions of reading are stored, because the library
/// does not expect any.
class LineIterator final : public sentencepiece::SentenceIterator {
 public:
  explicit LineIterator(const NextText& next) : next_(next) { LineIterator::Next(); }
  [[nodiscard]] bool done() const override { return done_; }
  [[nodiscard]] const std::string& value() const override { return line_; }
  [[nodiscard]] sentencepiece::util::Status status() const override { return {}; }
  void Next() override {
    try {
      done_ = !read_line();
    } catch (...) {
      error_ = std::current_exception();
      done_ = true;
    }
  }

  void rethrow() const {
    if (error_ != nullptr) std::rethrow_exception(error_);
  }
  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] std::int64_t too_long() const { return too_long_; }

 private:
  bool read_line() {
    do {
      while (rest_.empty()) {
        const auto text = next_();
        if (!text) return false;
        rest_ = *text;
      }
      const std::size_t end = std::min(rest_.find('\n'), rest_.size());
      line_ = rest_.substr(0, end);
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
    } while (line_.empty());
    ++count_;
    too_long_ += line_.size() > kMaxLineBytes ? 1 : 0;
    return true;
  }

  const NextText& next_;
  std::string_view rest_;  ///< unread rest of the text
  std::string line_;
  std::int64_t count_ = 0, too_long_ = 0;
  bool done_ = false;
  std::exception_ptr error_;
};

/// Our message for an error of the library, whose own advice names flags that do not exist here.
std::string training_error(std::string_view message, std::int64_t lines, std::int64_t vocab_size) {
  if (lines == 0) return kNoTrainingText;
  const auto number_after = [&](std::string_view words) {
    std::int64_t number = 0;
    if (const std::size_t at = message.find(words); at != std::string_view::npos)
      std::from_chars(message.data() + at + words.size(), message.data() + message.size(), number);
    return number;
  };
  if (const std::int64_t least = number_after(fmt::format(". {} vs ", vocab_size)); least > 0)
    return fmt::format(
        "--vocab-size must be at least {}, the special tokens, bytes and characters of the text; got {}; "
        "raise it, or lower --character-coverage",
        least, vocab_size);
  if (const std::int64_t most = number_after("to a value <= "); most > 0)
    return fmt::format(
        "--vocab-size must be at most {}, the pieces that {} lines of text give; got {}; lower it or add text",
        most, lines, vocab_size);
  return fmt::format("tokenizer: {} lines of text must give {} pieces; got '{}'; check the text", lines,
                     vocab_size, reason_in(message));
}

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece(const std::string& path) {
  if (path.empty())
    throw ConfigError("--tokenizer-model must name a .model file for SentencePiece; got none; give its path");
  if (!fs::is_directory(path)) return std::make_unique<SentencePiece>(fs::path(path));
  auto tokenizer = std::make_unique<SentencePiece>(fs::path(path) / "tokenizer.model");
  if (const fs::path file = fs::path(path) / "tokenizer_config.json"; fs::is_regular_file(file))
    with_json(file.string(), read_file(file),
              [&](const JsonView& config) { tokenizer->set_prompt_bos(config); });
  return tokenizer;
}

TrainedSentencePiece train_sentencepiece(const NextText& next, const SentencePieceTraining& training) {
  if (training.model_type != "bpe" && training.model_type != "unigram")
    throw ConfigError(fmt::format("--model-type must be bpe, unigram or byte-bpe; got '{}'; choose one",
                                  training.model_type));
  if (training.max_lines > 0 && training.max_lines <= 100)
    throw ConfigError(
        fmt::format("--input-sentence-size must be 0 or more than 100; got {}; raise it, or set 0 for all "
                    "lines",
                    training.max_lines));
  LineIterator lines(next);
  // A fixed number of threads, because the unigram trainer's sums depend on it.
  const std::unordered_map<std::string, std::string> settings{
      {"model_type", training.model_type},
      {"vocab_size", std::to_string(training.vocab_size)},
      {"byte_fallback", training.byte_fallback ? "true" : "false"},
      {"character_coverage", fmt::format("{}", training.character_coverage)},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"split_digits", "true"},
      {"allow_whitespace_only_pieces", "true"},
      {"input_sentence_size", std::to_string(training.max_lines)},
      {"shuffle_input_sentence", "true"},
      {"max_sentence_length", std::to_string(kMaxLineBytes)},
      {"num_threads", "4"},
      {"minloglevel", "2"}};
  TrainedSentencePiece trained;
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &lines, &trained.model);
  lines.rethrow();
  if (lines.count() > 0 && lines.too_long() == lines.count())
    throw DataError(fmt::format(
        "tokenizer: training lines must have at most {} bytes; got {}, all of them longer; break them",
        kMaxLineBytes, lines.count()));
  if (!status.ok()) throw DataError(training_error(status.ToString(), lines.count(), training.vocab_size));
  trained.lines = lines.count();
  trained.skipped_lines = lines.too_long();
  return trained;
}

}  // namespace colonnade::tokenizers
