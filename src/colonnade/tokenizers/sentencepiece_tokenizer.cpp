// See sentencepiece_tokenizer.h. The only file that sees SentencePiece's headers.
#include "colonnade/tokenizers/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <charconv>
#include <exception>
#include <filesystem>
#include <unordered_map>

#include "colonnade/base/byte_gate.h"
#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/reason.h"
#include "colonnade/tokenizers/decoder.h"
#include "colonnade/tokenizers/json_view.h"
#include "colonnade/tokenizers/normalizer.h"
#include "colonnade/tokenizers/piece_cuts.h"
#include "colonnade/tokenizers/unigram.h"

namespace colonnade::tokenizers {
namespace {

namespace fs = std::filesystem;

bool has_key(const JsonView& json, std::string_view key) {
  return json.object()[key].error() == simdjson::SUCCESS;
}

/// Whether Transformers 5 puts the bos in front of texts: where the file says so, and in Code Llama's class
/// where it does not speak of it.
bool puts_bos(const JsonView& config) {
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
    unigram_ = Unigram::read(model);
    cuts_.emplace(model, unigram_.has_value());
    mark_ = processor_.PieceToId({kMetaspace.data(), kMetaspace.size()});
  }

  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    std::string normalized;
    const auto add = [&](std::string_view part, bool marked) {
      if (!unigram_) {
        const std::vector<int> own = encoded<int>(part);
        const bool skip = marked && !own.empty() && own.front() == mark_;
        ids.insert(ids.end(), own.begin() + (skip ? 1 : 0), own.end());
        return;
      }
      // The library normalizes; which of equally good cuts to take is ours to say.
      const std::string own = unigram_->join(encoded<std::string>(part));
      normalized.append(own, marked && own.starts_with(kMetaspace) ? kMetaspace.size() : 0);
    };
    bool marked = false;
    while (text.size() > kPart) {
      const PieceCuts::Cut cut = cuts_->next(text, kPart);
      if (cut.end == text.size()) break;
      add_part(text.substr(0, cut.end), marked, add);
      text.remove_prefix(cut.begin);
      marked = cut.marked;
    }
    add_part(text, marked, add);
    return unigram_ ? unigram_->encode(normalized) : ids;
  }

  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override {
    for (const std::int32_t id : ids)
      if (id < 0 || id >= vocab_size())
        throw DataError(fmt::format("{}: ids are 0 to {}; got {}; the ids are another tokenizer's", path_,
                                    vocab_size() - 1, id));
    std::string text;
    const auto status = processor_.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
    if (!status.ok())
      throw DataError(
          fmt::format("{}: ids cannot be decoded; got '{}'; check them", path_, reason_in(status.message())));
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
    const int id = processor_.PieceToId({piece.data(), piece.size()});  // the unknown id for what it has not
    return processor_.IdToPiece(id) == piece ? id : -1;
  }
  [[nodiscard]] std::string piece_of(std::int32_t id) const override {
    return id >= 0 && id < processor_.GetPieceSize() ? processor_.IdToPiece(id) : std::string();
  }
  [[nodiscard]] std::int32_t eod() const override { return processor_.eos_id(); }
  [[nodiscard]] std::vector<std::int32_t> encode_with_begin(std::string_view text) const override {
    std::vector<std::int32_t> ids = encode(text);
    if (begin_ >= 0) ids.insert(ids.begin(), begin_);
    return ids;
  }

  /// By the tokenizer_config.json of a folder.
  void begin_as(const JsonView& config) {
    if (!puts_bos(config)) return;
    const auto bos = config.find("bos_token");
    if (bos)
      begin_ = id_of(bos->is_text() ? bos->text() : bos->text("content"));
    else if (!has_key(config, "bos_token"))
      begin_ = processor_.bos_id();
  }

 private:
  // The library takes up to 270 bytes of memory for a byte of normalized text.
  static constexpr std::size_t kPart = std::size_t{1} << 13, kLongestPart = std::size_t{2} << 20;

  template <typename Add>
  void add_part(std::string_view part, bool marked, const Add& add) const {
    const std::size_t size =
        part.size() > 2 * kPart ? cuts_->normalized_size(part) : cuts_->most_normalized(part);
    if (size > kLongestPart)
      throw DataError(fmt::format(
          "{}: text without a place to cut it, such as a space, must have at most {} bytes once it is "
          "normalized; got {}; split the document",
          path_, kLongestPart, size));
    const ByteGate::Pass inside(parts_, static_cast<std::int64_t>(size));
    add(part, marked);
  }

  /// Ids (int) or the texts of the pieces (std::string).
  template <typename Piece>
  [[nodiscard]] std::vector<Piece> encoded(std::string_view text) const {
    std::vector<Piece> pieces;
    const auto status = processor_.Encode({text.data(), text.size()}, &pieces);
    if (!status.ok())
      throw DataError(
          fmt::format("{}: text cannot be encoded; got '{}'; check it", path_, reason_in(status.message())));
    return pieces;
  }

  std::string path_;
  sentencepiece::SentencePieceProcessor processor_;
  std::optional<Unigram> unigram_;
  std::optional<PieceCuts> cuts_;
  mutable ByteGate parts_{kLongestPart};  ///< that all threads work on
  std::int32_t mark_ = -1;                ///< id of the mark of a space
  std::int32_t begin_ = -1;               ///< in front of texts in Transformers; -1: nothing
};

constexpr std::size_t kLongestLine = 1'000'000;

/// Gives the trainer one line after the other, without empty ones. What reading throws is kept, for the
/// library is not made for it.
class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const NextText& next) : next_(next) { Lines::Next(); }
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
    too_long_ += line_.size() > kLongestLine ? 1 : 0;
    return true;
  }

  const NextText& next_;
  std::string_view rest_;  ///< of the text
  std::string line_;
  std::int64_t count_ = 0, too_long_ = 0;
  bool done_ = false;
  std::exception_ptr error_;
};

/// The fault that the library's message tells of; its own advice names flags that are not ours.
std::string why_not_trained(std::string_view message, std::int64_t lines, std::int64_t vocab_size) {
  if (lines == 0) return kNoTrainingText;
  const auto number_behind = [&](std::string_view words) {
    std::int64_t number = 0;
    if (const std::size_t at = message.find(words); at != std::string_view::npos)
      std::from_chars(message.data() + at + words.size(), message.data() + message.size(), number);
    return number;
  };
  if (const std::int64_t least = number_behind(fmt::format(". {} vs ", vocab_size)); least > 0)
    return fmt::format(
        "--vocab-size must be at least {}, the special tokens, bytes and characters of the text; got {}; "
        "raise it, or lower --character-coverage",
        least, vocab_size);
  if (const std::int64_t most = number_behind("to a value <= "); most > 0)
    return fmt::format(
        "--vocab-size must be at most {}, the pieces that {} lines of text give; got {}; lower it or add text",
        most, lines, vocab_size);
  return fmt::format("tokenizer: {} lines of text must give {} pieces; got '{}'; check the text", lines,
                     vocab_size, reason_in(message));
}

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece(const std::string& path) {
  if (path.empty())
    throw ConfigError("--tokenizer-model: SentencePiece needs a .model file; got none; give its path");
  if (!fs::is_directory(path)) return std::make_unique<SentencePiece>(fs::path(path));
  auto tokenizer = std::make_unique<SentencePiece>(fs::path(path) / "tokenizer.model");
  if (const fs::path file = fs::path(path) / "tokenizer_config.json"; fs::is_regular_file(file))
    with_json(file.string(), read_file(file), [&](const JsonView& config) { tokenizer->begin_as(config); });
  return tokenizer;
}

TrainedSentencePiece train_sentencepiece(const NextText& next, const SentencePieceTraining& training) {
  if (training.model_type != "bpe" && training.model_type != "unigram")
    throw ConfigError(fmt::format("--model-type must be bpe, unigram or byte-bpe; got '{}'; choose one",
                                  training.model_type));
  if (training.most_lines > 0 && training.most_lines <= 100)
    throw ConfigError(
        fmt::format("--input-sentence-size must be 0 or more than 100; got {}; raise it, or give 0 for all "
                    "lines",
                    training.most_lines));
  Lines lines(next);
  // A fixed number of threads: the sums of the unigram trainer depend on it.
  const std::unordered_map<std::string, std::string> settings{
      {"model_type", training.model_type},
      {"vocab_size", std::to_string(training.vocab_size)},
      {"byte_fallback", training.byte_fallback ? "true" : "false"},
      {"character_coverage", fmt::format("{}", training.character_coverage)},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"split_digits", "true"},
      {"allow_whitespace_only_pieces", "true"},
      {"input_sentence_size", std::to_string(training.most_lines)},
      {"shuffle_input_sentence", "true"},
      {"max_sentence_length", std::to_string(kLongestLine)},
      {"num_threads", "4"},
      {"minloglevel", "2"}};
  TrainedSentencePiece trained;
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &lines, &trained.model);
  lines.rethrow();
  if (lines.count() > 0 && lines.too_long() == lines.count())
    throw DataError(fmt::format(
        "tokenizer: lines of text to train on must have at most {} bytes; got {}, all of them longer; break them",
        kLongestLine, lines.count()));
  if (!status.ok()) throw DataError(why_not_trained(status.ToString(), lines.count(), training.vocab_size));
  trained.lines = lines.count();
  trained.left_out = lines.too_long();
  return trained;
}

}  // namespace colonnade::tokenizers
