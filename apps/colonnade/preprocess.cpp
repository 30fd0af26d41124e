// `colonnade preprocess`: JSON lines to .bin/.idx with the flags of Megatron's tools/preprocess_data.py.
#include "colonnade/data/preprocess.h"

#include <fmt/ranges.h>
#include <glob.h>

#include <chrono>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/config/parse.h"
#include "colonnade/launch/process.h"
#include "flags.h"
#include "tokenizer_flags.h"
#include "verbs.h"

namespace colonnade::app {
namespace {

std::vector<std::filesystem::path> find_inputs(const std::vector<std::string>& patterns) {
  std::vector<std::filesystem::path> found;
  for (const std::string& pattern : patterns) {
    glob_t matches{};
    if (::glob(pattern.c_str(), 0, nullptr, &matches) == 0)
      for (std::size_t i = 0; i < matches.gl_pathc; ++i) found.emplace_back(matches.gl_pathv[i]);
    ::globfree(&matches);
    if (found.empty())
      throw DataError(fmt::format("{}: --input must name a file; got no such file; check the path", pattern));
  }
  return found;
}

/// Prints a line after every `interval` documents, at most two a second.
class Reporter {
 public:
  explicit Reporter(std::int64_t interval) : interval_(interval) {}

  void operator()(const data::PreprocessProgress& progress) {
    const auto now = Clock::now();
    if (progress.documents < next_ || now - last_ < std::chrono::milliseconds(500)) return;
    next_ = progress.documents + interval_;
    last_ = now;
    print("processed", progress);
  }
  void print(const char* what, const data::PreprocessProgress& progress) const {
    const double seconds = std::max(std::chrono::duration<double>(Clock::now() - start_).count(), 1e-6);
    log::info("{} {} documents, {} tokens ({:.0f} documents/s, {:.1f} MB/s)", what, progress.documents,
              progress.tokens, static_cast<double>(progress.documents) / seconds,
              static_cast<double>(progress.text_bytes) / 1e6 / seconds);
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::int64_t interval_;
  std::int64_t next_ = 0;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
};

/// What the flags say; the values of those that are not given are Megatron's.
struct Asked {
  data::PreprocessOptions options;
  data::TokenizerOptions tokenizer;
  std::vector<std::string> inputs;
  std::int64_t log_interval = 1000;
  std::int64_t partitions = 1;
  bool split_sentences = false;
  bool keep_sequential = false;
  bool keep_newlines = false;
  std::string dataset_impl = "mmap";
  std::string lang = "english";
  std::vector<std::int64_t> workers_to_check{16, 32, 64};
  std::int64_t max_documents = 100000;
};

void add_flags(CLI::App& app, Asked& asked) {
  data::PreprocessOptions& options = asked.options;
  app.description(
      "Tokenizes JSON lines (plain, gzip or zstd) into PREFIX_<key>_document.bin and .idx, byte for byte as\n"
      "Megatron's tools/preprocess_data.py does, whatever the number of workers.\n"
      "  colonnade preprocess --input books.jsonl --output-prefix books --tokenizer-type "
      "SentencePieceTokenizer\n"
      "      --tokenizer-model books.model --append-eod");
  options.workers = launch::usable_cores();
  app.add_option("--input", asked.inputs, "Files or patterns of files; one data set comes out")->required();
  app.add_option("--json-keys", options.json_keys, "Keys of the texts; one data set each")
      ->capture_default_str();
  app.add_option("--output-prefix", options.output_prefix, "Where the data sets go")->required();
  app.add_flag("--append-eod", options.append_eod, "End every document with the tokenizer's end of document");
  app.add_option("--workers", options.workers, "Threads")->capture_default_str()->check(within(1, 4096));
  app.add_option("--log-interval", asked.log_interval, "Documents between two lines of progress")
      ->capture_default_str();
  app.add_option("--partitions", asked.partitions,
                 "Above 1 only with --keep-sequential-samples; then it changes nothing");
  app.add_flag("--keep-sequential-samples", asked.keep_sequential,
               "Documents keep the order of the lines: always so here");
  app.add_flag("--keep-newlines", asked.keep_newlines, "Texts keep their line breaks: always so here");
  app.add_option("--dataset-impl", asked.dataset_impl,
                 "Of older scripts; mmap is the one format: always so here")
      ->capture_default_str();
  app.add_flag("--split-sentences", asked.split_sentences, "Refused: needs a sentence splitter");
  app.add_option("--lang", asked.lang, "Refused but for english: needs a sentence splitter")
      ->capture_default_str();
  app.add_option("--workers-to-check", asked.workers_to_check,
                 "Refused: no search for the number of workers");
  app.add_option("--max-documents", asked.max_documents, "Refused: no search for the number of workers");
  add_tokenizer_flags(app, asked.tokenizer);
}

/// Flags of Megatron's tools/preprocess_data.py that are no settings of a run and refused with any value.
const std::map<std::string, std::string>& refused() {
  static const std::string search =
      "must be left out, for there is no search for the number of workers; got it; --workers is the number "
      "of cores unless given, and the result does not depend on it";
  static const std::map<std::string, std::string> reasons = {{"--find-optimal-num-workers", search},
                                                             {"--performance-dir", search}};
  return reasons;
}

/// What Megatron's tool does and this one does not; Megatron's defaults may stand.
std::vector<std::string> faults_of(const Asked& asked) {
  const Asked defaults;
  std::vector<std::string> faults;
  const auto refuse = [&](bool wrong, const std::string& fault) {
    if (wrong) faults.push_back(fault);
  };
  refuse(
      asked.split_sentences,
      "--split-sentences: must be left out, for there is no sentence splitter here; got it; give every text "
      "as a list of sentences, each becomes a sequence");
  refuse(asked.lang != defaults.lang,
         fmt::format("--lang: must be left out, for only a sentence splitter reads it; got {}; texts of any "
                     "language are read without",
                     asked.lang));
  refuse(asked.dataset_impl != defaults.dataset_impl,
         fmt::format(
             "--dataset-impl: must be mmap, the one format that data sets are read in; got {}; leave it out",
             asked.dataset_impl));
  refuse(
      asked.partitions > 1 && !asked.keep_sequential,
      fmt::format("--partitions: must be 1, because Megatron's partitions reorder the documents; got {}; use "
                  "--workers, which is as fast and keeps the order",
                  asked.partitions));
  refuse(
      asked.workers_to_check != defaults.workers_to_check,
      fmt::format("--workers-to-check: must be left out, for there is no search for the number of workers; "
                  "got {}; give --workers",
                  fmt::join(asked.workers_to_check, " ")));
  refuse(
      asked.max_documents != defaults.max_documents,
      fmt::format("--max-documents: must be left out, for there is no search for the number of workers; got "
                  "{}; all documents are read",
                  asked.max_documents));
  return faults;
}

}  // namespace

Offers preprocess_offers() {
  CLI::App app("", "preprocess");
  Asked asked;
  add_flags(app, asked);
  return offers_of(app, "preprocess");
}

int preprocess(const Arguments& arguments) {
  CLI::App app("", "preprocess");
  Asked asked;
  add_flags(app, asked);
  if (!read_flags(app, arguments, refused())) return kExitDone;
  config::require_none(faults_of(asked));
  if (asked.keep_newlines) log::info("--keep-newlines: texts keep their line breaks, always so here");
  asked.options.inputs = find_inputs(asked.inputs);
  const auto tokens = data::make_tokenizer(asked.tokenizer);
  Reporter reporter(asked.log_interval);
  const auto done = data::preprocess(asked.options, *tokens,
                                     [&reporter](const data::PreprocessProgress& p) { reporter(p); });
  reporter.print("done:", done);
  return kExitDone;
}

}  // namespace colonnade::app
