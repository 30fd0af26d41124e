// See preprocess.h. Workers read chunks in order, encode them in parallel and write them in order.
#include "colonnade/preprocess/preprocess.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "colonnade/base/byte_semaphore.h"
#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/corpus/text_reader.h"
#include "colonnade/preprocess/chunk_tokenizer.h"
#include "colonnade/preprocess/preprocess_output.h"

namespace colonnade::preprocess {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Maximum bytes of text being encoded by all workers together; a single line may be longer.
constexpr std::int64_t kTextInFlight = 48LL << 20;

corpus::LineLimits limits_of(const PreprocessOptions& options) {
  return {.longest = static_cast<std::size_t>(options.longest_line), .columns = {.names = options.json_keys}};
}

class Pipeline {
 public:
  /// Without `output` and `journal` it writes nothing and stops after `max_documents`.
  Pipeline(const PreprocessOptions& options, const tokenizers::Tokenizer& tokenizer,
           const PreprocessEvents& events, PreprocessPoint from, PreprocessOutput* output,
           PreprocessJournal* journal, std::int64_t max_documents = std::numeric_limits<std::int64_t>::max())
      : options_(options),
        events_(events),
        chunk_tokenizer_(options, tokenizer),
        output_(output),
        journal_(journal),
        max_documents_(max_documents),
        next_input_(from.input),
        start_(from.position),
        point_(std::move(from)) {
    for (std::size_t i = 0; i < next_input_; ++i) files_before_ += file_size(i);
  }

  const PreprocessPoint& run() {
    if (events_.progress) events_.progress(point_.progress);
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < std::max(options_.workers, 1); ++i) threads.emplace_back([this] { work(); });
    }
    if (error_ != nullptr) std::rethrow_exception(error_);
    return point_;
  }

 private:
  struct Chunk {
    std::int64_t number = 0;
    std::size_t input = 0;
    corpus::LineChunk lines;
    std::int64_t file_bytes = 0;  // read bytes of all inputs so far
  };

  std::int64_t file_size(std::size_t input) const {
    return static_cast<std::int64_t>(fs::file_size(options_.inputs[input]));
  }

  /// Reads the next chunk of the inputs; returns false at the end. After an error nothing more is read, since
  /// the reader's position is undefined.
  bool read_chunk(Chunk& chunk) {
    const std::lock_guard lock(reading_);
    chunk.number = next_chunk_++;
    try {
      return read_next(chunk);
    } catch (...) {
      reader_.reset();
      next_input_ = options_.inputs.size();
      throw;
    }
  }

  bool read_next(Chunk& chunk) {
    for (;;) {
      if (reader_ == nullptr) {
        if (next_input_ == options_.inputs.size()) return false;
        reader_ = std::make_unique<corpus::LineReader>(options_.inputs[next_input_],
                                                       static_cast<std::size_t>(options_.chunk_bytes),
                                                       limits_of(options_), std::exchange(start_, {}));
      }
      chunk.input = next_input_;
      if (reader_->next(chunk.lines)) {
        chunk.file_bytes = files_before_ + chunk.lines.file_bytes;
        return gate_.acquire(static_cast<std::int64_t>(chunk.lines.text.size()));
      }
      reader_.reset();
      files_before_ += file_size(next_input_++);
    }
  }

  /// Read errors belong to their chunk, so they are reported in its turn as well.
  void work() {
    for (;;) {
      Chunk chunk;
      EncodedChunk encoded;
      std::exception_ptr error;
      bool more = true;
      try {
        more = read_chunk(chunk);
        if (more) encoded = chunk_tokenizer_.encode(options_.inputs[chunk.input].string(), chunk.lines);
      } catch (...) {
        error = std::current_exception();
      }
      std::unique_lock lock(writing_);
      turn_.wait(lock, [&] { return next_written_ == chunk.number || done_; });
      if (done_) return;
      if (more && error == nullptr) {
        try {
          write(chunk, encoded);
        } catch (...) {
          error = std::current_exception();
        }
      }
      gate_.release(static_cast<std::int64_t>(chunk.lines.text.size()));
      error_ = error;
      ++next_written_;
      done_ = !more || error != nullptr || point_.progress.documents >= max_documents_;
      if (done_) gate_.close();
      turn_.notify_all();
      if (done_) return;
    }
  }

  void write(const Chunk& chunk, const EncodedChunk& encoded) {
    if (output_ != nullptr) output_->add(encoded, point_.lines);
    if (events_.skipped)
      for (const std::string& why : encoded.skipped) events_.skipped(why);
    point_.input = chunk.input;
    point_.position = chunk.lines.end;
    point_.lines += encoded.lines;
    PreprocessProgress& done = point_.progress;
    for (const EncodedTexts& key : encoded.keys) done.tokens += static_cast<std::int64_t>(key.ids.size());
    done.documents += static_cast<std::int64_t>(encoded.document_lines.size());
    done.text_bytes += chunk.lines.end.byte - chunk.lines.begin.byte;
    done.skipped += static_cast<std::int64_t>(encoded.skipped.size());
    done.file_bytes = chunk.file_bytes;
    if (events_.progress) events_.progress(done);
    const bool stop = events_.stop && events_.stop();
    const bool due =
        std::chrono::duration<double>(Clock::now() - last_point_).count() >= options_.resume_seconds;
    if (journal_ != nullptr && (stop || due)) {
      point_.sets = output_->sync();
      journal_->add(point_);
      output_->keep_part_files(true);
      last_point_ = Clock::now();
    }
    if (stop)
      throw StopRequested(
          fmt::format("preprocess: stopped by a signal after {} documents; the same command resumes there",
                      done.documents));
  }

  const PreprocessOptions& options_;
  const PreprocessEvents& events_;
  const ChunkTokenizer chunk_tokenizer_;
  PreprocessOutput* output_;
  PreprocessJournal* journal_;
  std::int64_t max_documents_;
  ByteSemaphore gate_{kTextInFlight};

  std::mutex reading_;  // guards the next five
  std::unique_ptr<corpus::LineReader> reader_;
  std::size_t next_input_ = 0;
  corpus::LinePosition start_;  // in the first input
  std::int64_t next_chunk_ = 0;
  std::int64_t files_before_ = 0;

  std::mutex writing_;  // guards the rest and the output
  std::condition_variable turn_;
  std::int64_t next_written_ = 0;
  bool done_ = false;
  std::exception_ptr error_;
  PreprocessPoint point_;
  Clock::time_point last_point_ = Clock::now();
};

void check(const PreprocessOptions& options, const tokenizers::Tokenizer& tokenizer) {
  if (options.append_eod && tokenizer.eod() < 0)
    throw ConfigError(
        "--append-eod requires a tokenizer with an end of document; got none; train it with an eos piece");
  const std::set<std::string> keys(options.json_keys.begin(), options.json_keys.end());
  if (keys.size() != options.json_keys.size())
    throw ConfigError("--json-keys must name each key once, since each gives a data set; got one twice");
}

/// Path, size and modification time, which distinguish files of the same name.
nlohmann::json file_stamp(const fs::path& path) {
  std::error_code missing;  // reported when the file is opened
  const auto time = fs::last_write_time(path, missing).time_since_epoch();
  return {fs::absolute(path).string(), missing ? 0 : fs::file_size(path, missing),
          std::chrono::duration_cast<std::chrono::nanoseconds>(time).count()};
}

/// All settings that determine the output bytes, in one line.
std::string settings_of(const PreprocessOptions& options) {
  nlohmann::json inputs = nlohmann::json::array(), model = nlohmann::json::array();
  for (const fs::path& input : options.inputs) inputs.push_back(file_stamp(input));
  if (!options.punkt_model.empty()) {
    std::set<fs::path> files;
    for (const auto& entry : sorted_entries(options.punkt_model)) files.insert(entry.path());
    for (const fs::path& file : files) model.push_back(file_stamp(file));
  }
  return nlohmann::json{{"inputs", inputs},
                        {"json_keys", options.json_keys},
                        {"append_eod", options.append_eod},
                        {"longest_line", options.longest_line},
                        {"skip_bad_lines", options.skip_bad_lines},
                        {"partitions", options.partitions},
                        {"keep_sequential", options.keep_sequential},
                        {"punkt", model},
                        {"keep_newlines", options.keep_newlines},
                        {"tokenizer", options.tokenizer_identity}}
      .dump();
}

std::int64_t count_input_lines(const PreprocessOptions& options, const std::function<bool()>& stop) {
  std::int64_t lines = 0;
  corpus::LineChunk chunk;
  for (const fs::path& input : options.inputs) {
    corpus::LineReader reader(input, static_cast<std::size_t>(options.chunk_bytes), limits_of(options));
    while (reader.next(chunk)) {
      lines += count_lines(chunk);
      if (stop && stop())
        throw StopRequested(fmt::format(
            "preprocess: stopped by a signal after {} lines were counted; the same command counts them again",
            lines));
    }
  }
  return lines;
}

bool file_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// Limits the chunk size so that the chunks of all workers fit kTextInFlight and long lines are detected per
/// chunk.
PreprocessOptions with_chunk_size(PreprocessOptions options) {
  const std::int64_t share =
      std::max<std::int64_t>(kTextInFlight / (2 * std::max(options.workers, 1)), 1 << 16);
  options.chunk_bytes = std::min({options.chunk_bytes, share, options.longest_line});
  return options;
}

PreprocessProgress run_with(const PreprocessOptions& options, const tokenizers::Tokenizer& tokenizer,
                            const PreprocessEvents& events, PreprocessJournal& journal) {
  const std::optional<PreprocessPoint> last = journal.begin();
  PreprocessPoint point = last.value_or(PreprocessPoint{});
  if (events.note && last)
    events.note(fmt::format("resuming after {} documents of the interrupted run", point.progress.documents));
  if (events.note && journal.replaced())
    events.note("starting over: settings or inputs differ from those of the interrupted run");
  for (const fs::path& input : options.inputs)
    point.progress.total_bytes += static_cast<std::int64_t>(fs::file_size(input));
  const bool count = options.partitions > 1 && options.keep_sequential && !point.complete;
  PreprocessOutput output(options, data::token_type_for(tokenizer.vocab_size()),
                          count ? count_input_lines(options, events.stop) : 0, last ? &*last : nullptr);
  output.keep_part_files(last.has_value());
  if (!point.complete) {
    Pipeline pipeline(options, tokenizer, events, std::move(point), &output, &journal);
    try {
      point = pipeline.run();
      output.require_tokens(point.progress.documents);
    } catch (const DataError&) {
      // Bad input stays bad, so the run is discarded; but a missing input may come back with its disk.
      if (std::ranges::all_of(options.inputs, file_exists)) {
        output.keep_part_files(false);
        journal.remove();
      }
      throw;
    }
    point.complete = true;
    point.sets = output.sync();
    journal.add(point);
    output.keep_part_files(true);
  }
  output.finish(events.stop);
  journal.remove();
  return point.progress;
}

}  // namespace

PreprocessProgress preprocess(const PreprocessOptions& given, const tokenizers::Tokenizer& tokenizer,
                              const PreprocessEvents& events) {
  check(given, tokenizer);
  raise_open_file_limit(given);
  const PreprocessOptions options = with_chunk_size(given);
  PreprocessJournal journal(options.output_prefix, settings_of(options));
  try {
    return run_with(options, tokenizer, events, journal);
  } catch (...) {
    if (!journal.has_point()) journal.remove();
    throw;
  }
}

std::vector<double> measure_preprocess(PreprocessOptions options, const tokenizers::Tokenizer& tokenizer,
                                       const std::vector<std::int64_t>& workers, std::int64_t documents) {
  check(options, tokenizer);
  const PreprocessEvents silent;
  std::vector<double> rates;
  for (const std::int64_t each : workers) {
    options.workers = static_cast<int>(each);
    const PreprocessOptions chunked = with_chunk_size(options);
    const auto start = Clock::now();
    Pipeline pipeline(chunked, tokenizer, silent, {}, nullptr, nullptr, documents);
    const std::int64_t done = pipeline.run().progress.documents;
    rates.push_back(static_cast<double>(done) / std::chrono::duration<double>(Clock::now() - start).count());
  }
  return rates;
}

}  // namespace colonnade::preprocess
