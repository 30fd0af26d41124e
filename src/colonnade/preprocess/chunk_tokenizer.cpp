// See chunk_tokenizer.h and training_texts.h.
#include "colonnade/preprocess/chunk_tokenizer.h"

#include <simdjson.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "colonnade/base/error.h"
#include "colonnade/base/fault_text.h"
#include "colonnade/preprocess/punkt.h"
#include "colonnade/preprocess/training_texts.h"
#include "colonnade/tokenizers/json_view.h"

namespace colonnade::preprocess {
namespace {

namespace dom = simdjson::dom;

/// Start of a line for a message, without control characters.
std::string shown(std::string_view line) {
  std::string text(line.substr(0, 60));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; },
      ' ');
  return simdjson::validate_utf8(text) ? text : std::string("bytes that are not UTF-8");
}

/// Calls use(line) for every non-blank line of a chunk, and bad(number, why) if that throws or the line is
/// longer than `longest`; `fix` ends the message then.
template <typename Use, typename Bad>
void for_each_line(const corpus::LineChunk& chunk, std::size_t longest, Use&& use, Bad&& bad,
                   std::string_view fix = "split the document or raise --max-document-mb") {
  std::int64_t number = chunk.begin.line;
  const auto too_long = [&](std::int64_t size) {
    bad(number, fmt::format("must be at most {} bytes; got {}; {}", longest, size, fix));
  };
  if (chunk.too_long > 0) return too_long(chunk.too_long);
  const std::string_view text = chunk.text;
  for (std::size_t at = 0; at < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (line.size() > longest) {
      too_long(static_cast<std::int64_t>(line.size()));
      continue;
    }
    try {
      corpus::reject_byte_order_mark(line, "{");
      use(line);
    } catch (const simdjson::simdjson_error& error) {
      bad(number, fmt::format("must be a JSON object; got '{}' ({}); fix or remove the line", shown(line),
                              error.what()));
    } catch (const DataError& error) {
      bad(number, error.what());
    }
  }
}

/// Calls use(text) for the string, or each string of the list, under `key`; the last of equal keys counts, as
/// in Python.
template <typename Use>
void for_each_string(const dom::object& object, const std::string& key, Use&& use) {
  std::optional<dom::element> value;
  for (const dom::key_value_pair field : object)
    if (field.key == key) value = field.value;
  if (!value)
    throw DataError(fmt::format(
        "must have the key '{}'; got none; name the right one (--json-keys, --json-key of tokenizer train)",
        key));
  const auto use_string = [&](const dom::element& item) {
    std::string_view text;
    if (item.get(text) != simdjson::SUCCESS)
      throw DataError(
          fmt::format("the key '{}' must be a string or a list of strings; got {}; fix or remove it", key,
                      item.is_null() ? "null" : "something else"));
    use(text);
  };
  if (!value->is_array()) return use_string(*value);
  for (const dom::element item : value->get_array()) use_string(item);
}

/// Parses a line in place; copies it only if too few bytes after it are readable.
dom::object parse_line(dom::parser& parser, std::string_view line, const std::string& text) {
  const char* const readable = text.data() + text.capacity();
  const bool copy =
      readable - (line.data() + line.size()) < static_cast<std::ptrdiff_t>(simdjson::SIMDJSON_PADDING);
  const auto parsed = parser.parse(line.data(), line.size(), copy);
  if (parsed.error() == simdjson::SUCCESS) return parsed;
  // Numbers are not used here, and Python accepts some that simdjson does not: large integers, 1e999, NaN,
  // Infinity.
  return parser.parse(tokenizers::rewrite_numbers(line, [](std::string_view) { return std::string("0"); }));
}

}  // namespace

ChunkTokenizer::ChunkTokenizer(const PreprocessOptions& options, const tokenizers::Tokenizer& tokenizer)
    : options_(options), tokenizer_(tokenizer), long_texts_(options.longest_line) {
  if (!options.punkt_model.empty())
    punkt_ = std::make_unique<Punkt>(options.punkt_model, options.keep_newlines);
}

ChunkTokenizer::~ChunkTokenizer() = default;

EncodedChunk ChunkTokenizer::encode(const std::string& file, const corpus::LineChunk& chunk) const {
  EncodedChunk encoded;
  encoded.keys.resize(options_.json_keys.size());
  dom::parser parser;
  const auto encode_key = [&](const dom::object& object, std::size_t key) {
    EncodedTexts& texts = encoded.keys[key];
    const std::size_t ids_before = texts.ids.size();
    const std::size_t lengths_before = texts.lengths.size();
    for_each_string(object, options_.json_keys[key], [&](std::string_view text) { add_text(text, texts); });
    if (options_.append_eod && texts.ids.size() > ids_before) {
      texts.ids.push_back(tokenizer_.eod());
      ++texts.lengths.back();
    }
    texts.sequences.push_back(texts.lengths.size() - lengths_before);
  };
  // An unusable line must leave nothing under any key: sizes after the last good line.
  std::vector<std::pair<std::size_t, std::size_t>> good(encoded.keys.size());
  const auto use = [&](std::string_view line) {
    const dom::object object = parse_line(parser, line, chunk.text);
    for (std::size_t i = 0; i < encoded.keys.size(); ++i) encode_key(object, i);
    for (std::size_t i = 0; i < encoded.keys.size(); ++i)
      good[i] = {encoded.keys[i].ids.size(), encoded.keys[i].lengths.size()};
    encoded.document_lines.push_back(encoded.lines++);
  };
  const auto bad = [&](std::int64_t number, const std::string& why) {
    std::string message = fault_text(file + " " + chunk.name_of(number), why);
    if (!options_.skip_bad_lines) throw DataError(message + "; --on-error skip skips such lines");
    for (std::size_t i = 0; i < encoded.keys.size(); ++i) {
      encoded.keys[i].ids.resize(good[i].first);
      encoded.keys[i].lengths.resize(good[i].second);
      encoded.keys[i].sequences.resize(encoded.document_lines.size());
    }
    encoded.skipped.push_back(std::move(message));
    ++encoded.lines;
  };
  for_each_line(chunk, static_cast<std::size_t>(options_.longest_line), use, bad);
  return encoded;
}

void ChunkTokenizer::add_text(std::string_view text, EncodedTexts& encoded) const {
  constexpr std::size_t kLong = 1 << 16;
  if (text.size() < kLong) return encode_text(text, encoded);
  const auto bytes = static_cast<std::int64_t>(text.size());
  const auto leave = [&](ByteSemaphore* gate) { gate->release(bytes); };
  long_texts_.acquire(bytes);
  const std::unique_ptr<ByteSemaphore, decltype(leave)> inside(&long_texts_, leave);
  encode_text(text, encoded);
}

void ChunkTokenizer::encode_text(std::string_view text, EncodedTexts& encoded) const {
  const auto add = [&](std::string_view sequence) {
    std::vector<std::int32_t> ids = tokenizer_.encode_document(sequence);
    if (ids.empty()) return;
    encoded.lengths.push_back(static_cast<std::int32_t>(ids.size()));
    if (encoded.ids.empty()) {
      encoded.ids = std::move(ids);
    } else {
      encoded.ids.insert(encoded.ids.end(), ids.begin(), ids.end());
    }
  };
  if (punkt_ == nullptr) return add(text);
  for (const std::string_view sentence : punkt_->split(text)) add(sentence);
}

std::int64_t count_lines(const corpus::LineChunk& chunk) {
  std::int64_t lines = 0;
  for_each_line(
      chunk, std::numeric_limits<std::size_t>::max(), [&](std::string_view) { ++lines; },
      [&](std::int64_t, const std::string&) { ++lines; });
  return lines;
}

namespace {

constexpr std::size_t kLongestTrainingLine = std::size_t{1} << 28;

class TrainingTexts {
 public:
  TrainingTexts(std::vector<std::filesystem::path> inputs, std::string json_key)
      : inputs_(std::move(inputs)), json_key_(std::move(json_key)) {}

  std::optional<std::string_view> next() {
    for (; at_ == texts_.size(); read_chunk())
      if (reader_ == nullptr && input_ == inputs_.size()) return std::nullopt;
    return texts_[at_++];
  }

 private:
  /// Reads the texts of the next chunk, possibly none.
  void read_chunk() {
    texts_.clear();
    at_ = 0;
    const std::filesystem::path& input = inputs_[input_];
    if (reader_ == nullptr)
      reader_ = std::make_unique<corpus::LineReader>(
          input, std::size_t{1} << 20,
          corpus::LineLimits{.longest = kLongestTrainingLine, .columns = {.names = {json_key_}}});
    if (!reader_->next(chunk_)) {
      reader_.reset();
      ++input_;
      return;
    }
    const bool json = chunk_.is_rows || input.string().find(".jsonl") != std::string::npos;
    const auto keep = [&](std::string_view text) { texts_.emplace_back(text); };
    const auto use = [&](std::string_view line) {
      if (!json && chunk_.begin.byte == 0 && line.data() == chunk_.text.data())
        corpus::reject_byte_order_mark(line, "");
      if (!json) return keep(line);
      for_each_string(parse_line(parser_, line, chunk_.text), json_key_, keep);
    };
    const auto bad = [&](std::int64_t number, const std::string& why) {
      throw DataError(fault_text(input.string() + " " + chunk_.name_of(number), why));
    };
    for_each_line(chunk_, kLongestTrainingLine, use, bad, "split it into lines");
  }

  std::vector<std::filesystem::path> inputs_;
  std::string json_key_;
  std::size_t input_ = 0;
  std::unique_ptr<corpus::LineReader> reader_;
  corpus::LineChunk chunk_;
  dom::parser parser_;
  std::vector<std::string> texts_;
  std::size_t at_ = 0;
};

}  // namespace

tokenizers::NextText read_texts(const std::vector<std::filesystem::path>& inputs,
                                const std::string& json_key) {
  const auto texts = std::make_shared<TrainingTexts>(inputs, json_key);
  return [texts] { return texts->next(); };
}

}  // namespace colonnade::preprocess
