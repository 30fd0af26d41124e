// See preprocess.h. Workers take chunks in turn, tokenize them side by side and write them in turn.
#include "colonnade/data/preprocess.h"

#include <simdjson.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "colonnade/base/error.h"
#include "colonnade/data/indexed_dataset.h"
#include "colonnade/data/text_reader.h"

namespace colonnade::data {
namespace {

namespace dom = simdjson::dom;

/// The documents of one key in a chunk: ids of all, lengths of all sequences, sequences of each document.
struct Encoded {
  std::vector<std::int32_t> ids, lengths;
  std::vector<std::size_t> sequences;
};

/// Calls use(line) for every line of a chunk that is not blank; errors name the file and line.
template <typename Use>
void for_each_line(const std::string& file, const LineChunk& chunk, Use&& use) {
  std::int64_t number = chunk.first_line;
  const std::string_view text = chunk.text;
  for (std::size_t at = 0; at < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      use(line);
    } catch (const simdjson::simdjson_error& error) {
      throw DataError(fmt::format("{} line {}: must be a JSON object; got '{}' ({}); mend or remove the line",
                                  file, number, line.substr(0, 60), error.what()));
    } catch (const DataError& error) {
      throw DataError(fmt::format("{} line {}: {}", file, number, error.what()));
    }
  }
}

/// Calls use(text) for the string, or each string of the list, under `key`.
template <typename Use>
void for_each_text(const dom::object& object, const std::string& key, Use&& use) {
  dom::element value;
  if (object.at_key(key).get(value) != simdjson::SUCCESS)
    throw DataError(
        fmt::format("every line must have the key '{}'; got none; name the right one with --json-keys", key));
  const auto use_string = [&](const dom::element& item) {
    std::string_view text;
    if (item.get(text) != simdjson::SUCCESS)
      throw DataError(fmt::format(
          "the key '{}' must be a string or a list of strings; got something else; mend the line", key));
    use(text);
  };
  if (!value.is_array()) return use_string(value);
  for (const dom::element item : value.get_array()) use_string(item);
}

class Pipeline {
 public:
  Pipeline(const PreprocessOptions& options, const Tokenizer& tokenizer,
           const std::function<void(const PreprocessProgress&)>& report)
      : options_(options), tokenizer_(tokenizer), report_(report) {
    for (const std::string& key : options.json_keys)
      builders_.push_back(std::make_unique<IndexedDatasetBuilder>(
          fmt::format("{}_{}_document", options.output_prefix, key), token_type_for(tokenizer.vocab_size())));
  }

  PreprocessProgress run() {
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < std::max(options_.workers, 1); ++i) threads.emplace_back([this] { work(); });
    }
    if (error_ != nullptr) std::rethrow_exception(error_);
    for (std::size_t i = 0; i < builders_.size(); ++i)
      if (builders_[i]->num_tokens() == 0)
        throw DataError(fmt::format(
            "{}: a data set must hold tokens; got {} documents without any under the key '{}'; check the "
            "files and the keys of their lines",
            options_.output_prefix, progress_.documents, options_.json_keys[i]));
    for (const auto& builder : builders_) builder->finalize();
    return progress_;
  }

 private:
  struct Chunk {
    std::int64_t number = 0;
    std::string file;
    LineChunk lines;
  };

  /// The next chunk of all inputs; false at the end.
  bool take(Chunk& chunk) {
    const std::lock_guard lock(reading_);
    chunk.number = next_chunk_++;
    for (;;) {
      if (reader_ == nullptr) {
        if (next_input_ == options_.inputs.size()) return false;
        reader_ = std::make_unique<LineReader>(options_.inputs[next_input_],
                                               static_cast<std::size_t>(options_.chunk_bytes));
      }
      chunk.file = options_.inputs[next_input_].string();
      if (reader_->next(chunk.lines)) return true;
      reader_.reset();
      ++next_input_;
    }
  }

  /// Reading errors belong to the chunk that was asked for, so they wait for their turn too.
  void work() {
    for (;;) {
      Chunk chunk;
      std::vector<Encoded> encoded;
      std::exception_ptr error;
      bool more = true;
      try {
        more = take(chunk);
        if (more) encoded = encode(chunk);
      } catch (...) {
        error = std::current_exception();
      }
      std::unique_lock lock(writing_);
      turn_.wait(lock, [&] { return next_written_ == chunk.number || error_ != nullptr; });
      if (error_ != nullptr) return;
      if (more && error == nullptr) {
        try {
          write(chunk, encoded);
        } catch (...) {
          error = std::current_exception();
        }
      }
      error_ = error;
      ++next_written_;
      turn_.notify_all();
      if (!more || error != nullptr) return;
    }
  }

  std::vector<Encoded> encode(const Chunk& chunk) const {
    std::vector<Encoded> encoded(builders_.size());
    dom::parser parser;
    for_each_line(chunk.file, chunk.lines, [&](std::string_view line) {
      const dom::object object = parser.parse(line.data(), line.size());
      for (std::size_t i = 0; i < encoded.size(); ++i) encode_key(object, options_.json_keys[i], encoded[i]);
    });
    return encoded;
  }

  void encode_key(const dom::object& object, const std::string& key, Encoded& encoded) const {
    const std::size_t ids_before = encoded.ids.size();
    const std::size_t lengths_before = encoded.lengths.size();
    for_each_text(object, key, [&](std::string_view text) { add_text(text, encoded); });
    if (options_.append_eod && encoded.ids.size() > ids_before) {
      encoded.ids.push_back(tokenizer_.eod());
      ++encoded.lengths.back();
    }
    encoded.sequences.push_back(encoded.lengths.size() - lengths_before);
  }

  void add_text(std::string_view text, Encoded& encoded) const {
    const std::vector<std::int32_t> ids = tokenizer_.encode_document(text);
    if (ids.empty()) return;
    encoded.ids.insert(encoded.ids.end(), ids.begin(), ids.end());
    encoded.lengths.push_back(static_cast<std::int32_t>(ids.size()));
  }

  void write(const Chunk& chunk, const std::vector<Encoded>& encoded) {
    for (std::size_t i = 0; i < encoded.size(); ++i) {
      std::span<const std::int32_t> ids(encoded[i].ids);
      std::span<const std::int32_t> lengths(encoded[i].lengths);
      for (const std::size_t sequences : encoded[i].sequences) {
        const std::span<const std::int32_t> own = lengths.first(sequences);
        std::size_t tokens = 0;
        for (const std::int32_t length : own) tokens += static_cast<std::size_t>(length);
        builders_[i]->add_document(ids.first(tokens), own);
        ids = ids.subspan(tokens);
        lengths = lengths.subspan(sequences);
      }
      progress_.tokens += static_cast<std::int64_t>(encoded[i].ids.size());
    }
    if (!encoded.empty()) progress_.documents += static_cast<std::int64_t>(encoded[0].sequences.size());
    progress_.text_bytes += static_cast<std::int64_t>(chunk.lines.text.size());
    if (report_) report_(progress_);
  }

  const PreprocessOptions& options_;
  const Tokenizer& tokenizer_;
  const std::function<void(const PreprocessProgress&)>& report_;
  std::vector<std::unique_ptr<IndexedDatasetBuilder>> builders_;

  std::mutex reading_;  // guards the next three
  std::unique_ptr<LineReader> reader_;
  std::size_t next_input_ = 0;
  std::int64_t next_chunk_ = 0;

  std::mutex writing_;  // guards the rest and the builders
  std::condition_variable turn_;
  std::int64_t next_written_ = 0;
  std::exception_ptr error_;
  PreprocessProgress progress_;
};

}  // namespace

PreprocessProgress preprocess(const PreprocessOptions& options, const Tokenizer& tokenizer,
                              const std::function<void(const PreprocessProgress&)>& report) {
  if (options.append_eod && tokenizer.eod() < 0)
    throw ConfigError(
        "--append-eod: the tokenizer must have an end of document; got none; train it with an eos piece");
  return Pipeline(options, tokenizer, report).run();
}

std::vector<std::string> read_texts(const std::vector<std::filesystem::path>& inputs,
                                    const std::string& json_key) {
  std::vector<std::string> texts;
  dom::parser parser;
  LineChunk chunk;
  for (const std::filesystem::path& input : inputs) {
    const bool json = input.string().find(".jsonl") != std::string::npos;
    LineReader reader(input, std::size_t{1} << 20);
    while (reader.next(chunk)) {
      for_each_line(input.string(), chunk, [&](std::string_view line) {
        if (!json) {
          texts.emplace_back(line);
          return;
        }
        for_each_text(parser.parse(line.data(), line.size()), json_key,
                      [&](std::string_view text) { texts.emplace_back(text); });
      });
    }
  }
  return texts;
}

}  // namespace colonnade::data
