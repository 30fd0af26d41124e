// `colonnade preprocess`: JSON lines and Parquet to .bin/.idx with the flags of Megatron's
// tools/preprocess_data.py.
#include "colonnade/preprocess/preprocess.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/base/stop_signal.h"
#include "colonnade/config/parse.h"
#include "colonnade/config/schema.h"
#include "colonnade/corpus/input_files.h"
#include "colonnade/launch/process.h"
#include "flags.h"
#include "tokenizer_flags.h"
#include "verbs.h"

namespace colonnade::app {
namespace {

std::string duration(double seconds) {
  const auto minutes = static_cast<std::int64_t>(seconds / 60);
  if (minutes == 0) return fmt::format("{:.0f} s", seconds);
  return minutes < 60 ? fmt::format("{} min", minutes)
                      : fmt::format("{} h {} min", minutes / 60, minutes % 60);
}

/// Prints a line after every `interval` documents, at most two a second. The first call says where it begins.
class Reporter {
 public:
  explicit Reporter(std::int64_t interval) : interval_(interval) {}

  void operator()(const preprocess::PreprocessProgress& progress) {
    const auto now = Clock::now();
    if (!begun_) {
      first_ = progress;
      next_ = progress.documents + interval_;
      begun_ = true;
      return;
    }
    if (progress.documents < next_ || now - last_ < std::chrono::milliseconds(500)) return;
    next_ = progress.documents + interval_;
    last_ = now;
    const auto read = static_cast<double>(progress.file_bytes - first_.file_bytes);
    const auto rest = static_cast<double>(progress.total_bytes - progress.file_bytes);
    print("processed", progress,
          fmt::format(
              ", {:.0f} % read, {} left",
              100.0 * static_cast<double>(progress.file_bytes) / static_cast<double>(progress.total_bytes),
              duration(seconds() * rest / std::max(read, 1.0))));
  }
  void print(const char* what, const preprocess::PreprocessProgress& progress,
             const std::string& rest = "") const {
    log::info("{} {} documents, {} tokens{} ({:.0f} documents/s, {:.1f} MB/s{})", what, progress.documents,
              progress.tokens,
              progress.skipped == 0 ? "" : fmt::format(", skipped {} lines", progress.skipped),
              static_cast<double>(progress.documents - first_.documents) / seconds(),
              static_cast<double>(progress.text_bytes - first_.text_bytes) / 1e6 / seconds(), rest);
  }

 private:
  using Clock = std::chrono::steady_clock;
  double seconds() const {
    return std::max(std::chrono::duration<double>(Clock::now() - start_).count(), 1e-6);
  }

  std::int64_t interval_;
  std::int64_t next_ = 0;
  bool begun_ = false;
  preprocess::PreprocessProgress first_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_ - std::chrono::seconds(1);  // the first line comes at once
};

/// Flags of Megatron's tool that change no byte; those without a reason have the one of a run.
struct IdleFlag {
  const char* flag;
  bool takes_value;
  const char* why;
};
constexpr IdleFlag kIdle[] = {
    {"--padded-vocab-size", true, "changes no byte; a run pads the vocabulary"},
    {"--vocab-extra-ids", true, "changes no byte; a run of a T5 gives the sentinels their ids"},
    {"--chat-template", true, "changes no byte; texts are not written by a template (--sft of a run is)"},
    {"--trust-remote-code", false, nullptr},
    {"--use-gigatoken", false, nullptr}};

std::string why_idle(const IdleFlag& idle) {
  return idle.why != nullptr ? idle.why : config::find(idle.flag)->setting->help;
}

/// What the flags say; the values of those that are not given are Megatron's.
struct Asked {
  preprocess::PreprocessOptions options;
  tokenizers::TokenizerOptions tokenizer;
  std::vector<std::string> inputs;
  std::int64_t log_interval = 1000;
  std::int64_t max_document_mb = 16;  // whose tokens take less than 1 GB of memory
  bool split_sentences = false;
  std::string on_error = "stop";
  std::string dataset_impl = "mmap";
  std::string lang = "english";
  std::string punkt_model;
  bool find_workers = false;
  std::vector<std::int64_t> workers_to_check{16, 32, 64};
  std::int64_t max_documents = 100000;
  std::optional<std::int64_t> null_eod;
  std::int64_t null_pad = -1;
};

CLI::Validator stop_or_skip() {
  const auto check = [](const std::string& word) -> std::string {
    if (word == "stop" || word == "skip") return "";
    return fmt::format("must be stop or skip; got '{}'; write one of the two", word);
  };
  return {check, "stop|skip"};
}

void add_speed_flags(CLI::App& app, Asked& asked) {
  preprocess::PreprocessOptions& options = asked.options;
  options.workers = launch::usable_cores();
  app.add_option("--workers", options.workers, "Threads")->capture_default_str()->check(within(1, 4096));
  app.add_option("--log-interval", asked.log_interval, "Documents between two lines of progress")
      ->capture_default_str()
      ->check(within(1));
  app.add_option("--resume-interval", options.resume_seconds,
                 "Seconds between two points that the same command goes on from after a kill")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--find-optimal-num-workers", asked.find_workers,
               "Write nothing; measure each of --workers-to-check");
  app.add_option("--workers-to-check", asked.workers_to_check, "For --find-optimal-num-workers")
      ->capture_default_str()
      ->check(within(1, 4096));
  app.add_option("--max-documents", asked.max_documents, "What --find-optimal-num-workers measures on")
      ->capture_default_str()
      ->check(within(1));
}

/// Flags that Megatron's tool takes and that say here what is so anyway.
void add_idle_flags(CLI::App& app, Asked& asked) {
  for (const IdleFlag& idle : kIdle) {
    const std::string help = "Taken, and said: " + why_idle(idle);
    if (idle.takes_value) {
      app.add_option(idle.flag, help)->type_name("TEXT")->expected(1);
    } else {
      app.add_flag(idle.flag, help);
    }
  }
  app.add_option("--null-tokenizer-eod-id", asked.null_eod, "The last id, always so here");
  app.add_option("--null-tokenizer-pad-id", asked.null_pad, "-1, always so here: no id is a pad");
}

void add_flags(CLI::App& app, Asked& asked) {
  preprocess::PreprocessOptions& options = asked.options;
  app.description(
      "Tokenizes JSON lines (plain, gzip or zstd) or rows of Parquet into PREFIX_<key>_document.bin and .idx, byte\n"
      "for byte as Megatron's tools/preprocess_data.py does, whatever the number of workers. After a kill the same\n"
      "command goes on.\n"
      "  colonnade preprocess --input books.jsonl --output-prefix books --tokenizer-type "
      "SentencePieceTokenizer\n"
      "      --tokenizer-model books.model --append-eod");
  app.add_option("--input", asked.inputs,
                 "Files, patterns of files, or folders of .jsonl and .parquet files; one data set comes out")
      ->required();
  app.add_option("--json-keys", options.json_keys,
                 "Keys of the texts, names of columns in Parquet; one data set each")
      ->capture_default_str();
  app.add_option("--output-prefix", options.output_prefix, "Where the data sets go")
      ->required()
      ->check(not_empty());
  app.add_flag("--append-eod", options.append_eod, "End every document with the tokenizer's end of document");
  app.add_option("--on-error", asked.on_error,
                 "stop at the first line that cannot be used, or skip such lines and count them")
      ->capture_default_str()
      ->check(stop_or_skip());
  app.add_option("--max-document-mb", asked.max_document_mb,
                 "A longer line cannot be used; memory grows with it")
      ->capture_default_str()
      ->check(within(1, 2000));
  app.add_option("--partitions", options.partitions,
                 "Data sets PREFIX_<i>_<key>_document from lines in turn, then all of them in one")
      ->capture_default_str()
      ->check(within(1, 4096));
  app.add_flag("--keep-sequential-samples", options.keep_sequential,
               "Partitions have lines that follow each other, so that the order is kept");
  app.add_flag("--split-sentences", asked.split_sentences,
               "Cut texts into sentences by Punkt; PREFIX_<key>_sentence comes out");
  app.add_option(
      "--punkt-model", asked.punkt_model,
      "Folder with the files of NLTK's punkt_tab; without it $NLTK_DATA/tokenizers/punkt_tab/LANG");
  app.add_option("--lang", asked.lang, "Language of --split-sentences")->capture_default_str();
  app.add_flag("--keep-newlines", options.keep_newlines,
               "Sentences keep the white space behind them; whole texts always do");
  app.add_option("--dataset-impl", asked.dataset_impl,
                 "Of older scripts; mmap is the one format: always so here")
      ->capture_default_str();
  add_speed_flags(app, asked);
  add_tokenizer_flags(app, asked.tokenizer);
  add_idle_flags(app, asked);
}

/// Flags of older tools/preprocess_data.py that are refused with any value.
const std::map<std::string, std::string>& refused() {
  static const std::map<std::string, std::string> reasons = {
      {"--performance-dir",
       "must be left out, for --find-optimal-num-workers prints what it measured; got it; redirect standard "
       "error"}};
  return reasons;
}

/// The folder of the sentence splitter's model.
std::string punkt_folder(const Asked& asked) {
  if (!asked.punkt_model.empty()) return asked.punkt_model;
  const char* data = std::getenv("NLTK_DATA");
  return data == nullptr ? "" : fmt::format("{}/tokenizers/punkt_tab/{}", data, asked.lang);
}

/// What contradicts or would do nothing; Megatron's defaults may stand.
std::vector<std::string> faults_of(const Asked& asked) {
  const Asked defaults;
  std::vector<std::string> faults;
  const auto refuse = [&](bool wrong, const std::string& fault) {
    if (wrong) faults.push_back(fault);
  };
  const std::string folder = punkt_folder(asked);
  refuse(
      asked.split_sentences && !std::filesystem::is_directory(folder),
      fmt::format(
          "--split-sentences: needs a folder with a model of Punkt; got {}; get one with `python3 -m "
          "nltk.downloader punkt_tab` and give e.g. --punkt-model ~/nltk_data/tokenizers/punkt_tab/{}",
          folder.empty() ? "neither --punkt-model nor NLTK_DATA" : folder + ", which is none", asked.lang));
  refuse(!asked.split_sentences && !asked.punkt_model.empty(),
         fmt::format("--punkt-model: only --split-sentences reads it; got {} without; give both or neither",
                     asked.punkt_model));
  refuse(!asked.split_sentences && asked.lang != defaults.lang,
         fmt::format("--lang must be left out, for only --split-sentences reads it; got {}; texts of any "
                     "language are read without",
                     asked.lang));
  refuse(asked.dataset_impl != defaults.dataset_impl,
         fmt::format(
             "--dataset-impl must be mmap, the one format that data sets are read in; got {}; leave it out",
             asked.dataset_impl));
  refuse(
      !asked.find_workers && asked.workers_to_check != defaults.workers_to_check,
      fmt::format("--workers-to-check: only --find-optimal-num-workers reads it; got {} without; give both "
                  "or --workers",
                  fmt::join(asked.workers_to_check, " ")));
  refuse(
      !asked.find_workers && asked.max_documents != defaults.max_documents,
      fmt::format("--max-documents: only --find-optimal-num-workers reads it; got {} without; leave it out, "
                  "all documents are read",
                  asked.max_documents));
  const std::int64_t last = asked.tokenizer.vocab_size - 1;
  refuse(asked.tokenizer.type == "NullTokenizer" && asked.null_eod.value_or(last) != last,
         fmt::format("--null-tokenizer-eod-id must be the last id, {} with --vocab-size {}; got {}; leave it "
                     "out, or change --vocab-size",
                     last, last + 1, asked.null_eod.value_or(last)));
  refuse(asked.tokenizer.type == "NullTokenizer" && asked.null_pad != defaults.null_pad,
         fmt::format("--null-tokenizer-pad-id must be -1, for no id is a pad; got {}; leave it out",
                     asked.null_pad));
  return faults;
}

/// What decides the ids: flags, and the files they name with size and time of change.
std::string identity_of(const tokenizers::TokenizerOptions& options) {
  std::string identity =
      fmt::format("{} {} {} {} {} {}", COLONNADE_VERSION, options.type, options.vocab_size,
                  options.special_in_documents, options.tiktoken_pattern, options.tiktoken_num_special);
  const auto add = [&identity](const std::filesystem::path& file) {
    identity += fmt::format(" {} {} {}", file.string(), std::filesystem::file_size(file),
                            std::filesystem::last_write_time(file).time_since_epoch().count());
  };
  for (const std::string& path : {options.model, options.vocab_file, options.merge_file}) {
    if (std::filesystem::is_regular_file(path)) add(path);
    if (!std::filesystem::is_directory(path)) continue;
    std::set<std::filesystem::path> files;
    for (const auto& entry : entries_of(path))
      if (entry.is_regular_file()) files.insert(entry.path());
    std::ranges::for_each(files, add);
  }
  return identity;
}

void find_workers(const Asked& asked, const tokenizers::Tokenizer& tokens) {
  const std::vector<double> rates =
      preprocess::measure_preprocess(asked.options, tokens, asked.workers_to_check, asked.max_documents);
  for (std::size_t i = 0; i < rates.size(); ++i)
    log::info("{} workers: {:.0f} documents/s", asked.workers_to_check[i], rates[i]);
  const auto best = std::max_element(rates.begin(), rates.end()) - rates.begin();
  log::info("the fastest is --workers {}; nothing was written",
            asked.workers_to_check[static_cast<std::size_t>(best)]);
}

void convert(const Asked& asked, const tokenizers::Tokenizer& tokens) {
  constexpr int kNamedLines = 100;
  Reporter reporter(asked.log_interval);
  StopSignals signals;
  signals.remember();
  int named = 0;
  preprocess::PreprocessEvents events;
  events.progress = [&reporter](const preprocess::PreprocessProgress& progress) { reporter(progress); };
  events.note = [](const std::string& text) { log::info("{}", text); };
  events.stop = [&signals] { return signals.requested() != 0; };
  events.skipped = [&named](const std::string& why) {
    if (++named <= kNamedLines) log::warning("skipped: {}", why);
    if (named == kNamedLines) log::warning("skipped: further lines are counted and not named");
  };
  reporter.print("done:", preprocess::preprocess(asked.options, tokens, events));
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
  for (const IdleFlag& idle : kIdle)
    if (app.get_option(idle.flag)->count() > 0) log::info("{}: {}", idle.flag, why_idle(idle));
  if (asked.options.keep_newlines && !asked.split_sentences)
    log::info("--keep-newlines: texts keep their line breaks, always so without --split-sentences");
  if (asked.split_sentences) asked.options.punkt_model = punkt_folder(asked);
  asked.options.skip_bad_lines = asked.on_error == "skip";
  asked.options.longest_line = asked.max_document_mb << 20;
  asked.options.inputs = corpus::input_files(asked.inputs);
  asked.options.tokenizer_identity = identity_of(asked.tokenizer);
  const auto tokens = tokenizers::make_tokenizer(asked.tokenizer);
  if (asked.find_workers) {
    find_workers(asked, *tokens);
  } else {
    convert(asked, *tokens);
  }
  return kExitDone;
}

}  // namespace colonnade::app
