// `colonnade preprocess`: JSON lines and Parquet to .bin and .idx, with the flags of Megatron's
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

/// Logs a line after every `interval` documents, at most two per second. The first call sets the starting
/// point.
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
  Clock::time_point last_ = start_ - std::chrono::seconds(1);  // the first line is logged immediately
};

/// Flags of Megatron's tool that have no effect on the output; a null reason means that of the run's setting.
struct NoOpFlag {
  const char* flag;
  bool takes_value;
  const char* why;
};
constexpr NoOpFlag kNoOp[] = {
    {"--padded-vocab-size", true, "has no effect on the output; runs pad the vocabulary"},
    {"--vocab-extra-ids", true, "has no effect on the output; T5 runs assign the sentinel ids"},
    {"--chat-template", true, "has no effect on the output; only --sft of runs applies chat templates"},
    {"--trust-remote-code", false, nullptr},
    {"--use-gigatoken", false, nullptr}};

std::string no_op_reason(const NoOpFlag& no_op) {
  return no_op.why != nullptr ? no_op.why : config::find(no_op.flag)->setting->help;
}

/// Values of the flags; defaults are Megatron's.
struct Flags {
  preprocess::PreprocessOptions options;
  tokenizers::TokenizerOptions tokenizer;
  std::vector<std::string> inputs;
  std::int64_t log_interval = 1000;
  std::int64_t max_document_mb = 16;  // tokenizing such a line takes less than 1 GB of memory
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

void add_speed_flags(CLI::App& app, Flags& flags) {
  preprocess::PreprocessOptions& options = flags.options;
  options.workers = launch::usable_cores();
  app.add_option("--workers", options.workers, "Worker threads")
      ->capture_default_str()
      ->check(within(1, 4096));
  app.add_option("--log-interval", flags.log_interval, "Documents between progress lines")
      ->capture_default_str()
      ->check(within(1));
  app.add_option("--resume-interval", options.resume_seconds,
                 "Seconds between resume points, at which the same command continues after a kill")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber.description("0 or more"));
  app.add_flag("--find-optimal-num-workers", flags.find_workers,
               "Measure each of --workers-to-check without writing output");
  app.add_option("--workers-to-check", flags.workers_to_check,
                 "Worker counts that --find-optimal-num-workers measures")
      ->capture_default_str()
      ->check(within(1, 4096));
  app.add_option("--max-documents", flags.max_documents,
                 "Documents that --find-optimal-num-workers measures on")
      ->capture_default_str()
      ->check(within(1));
}

/// Flags of Megatron's tool that are accepted for compatibility.
void add_no_op_flags(CLI::App& app, Flags& flags) {
  for (const NoOpFlag& no_op : kNoOp) {
    const std::string help = "Accepted for compatibility: " + no_op_reason(no_op);
    if (no_op.takes_value) {
      app.add_option(no_op.flag, help)->type_name("TEXT")->expected(1);
    } else {
      app.add_flag(no_op.flag, help);
    }
  }
  app.add_option("--null-tokenizer-eod-id", flags.null_eod,
                 "Must be the last id; accepted for compatibility");
  app.add_option("--null-tokenizer-pad-id", flags.null_pad,
                 "Must be -1 (no pad); accepted for compatibility");
}

void add_flags(CLI::App& app, Flags& flags) {
  preprocess::PreprocessOptions& options = flags.options;
  describe(
      app,
      "Tokenizes JSON lines (plain, gzip or zstd) or Parquet rows into PREFIX_<key>_document.bin and .idx, "
      "byte-identical to Megatron's tools/preprocess_data.py for any number of workers. After a kill the same "
      "command resumes.",
      {"colonnade preprocess --input books.jsonl --output-prefix books --tokenizer-type "
       "SentencePieceTokenizer --tokenizer-model books.model --append-eod"});
  app.add_option("--input", flags.inputs,
                 "Files, glob patterns, or folders of .jsonl and .parquet files, as one data set")
      ->required();
  app.add_option("--json-keys", options.json_keys, "Keys of the texts, or Parquet columns; one data set each")
      ->capture_default_str();
  app.add_option("--output-prefix", options.output_prefix, "Prefix of the data sets")
      ->required()
      ->check(not_empty());
  app.add_flag("--append-eod", options.append_eod,
               "Append the tokenizer's end of document to every document");
  app.add_option("--on-error", flags.on_error,
                 "stop at the first unusable line, or skip and count such lines")
      ->capture_default_str()
      ->check(stop_or_skip());
  app.add_option("--max-document-mb", flags.max_document_mb,
                 "Maximum size of a usable line; memory grows with it")
      ->capture_default_str()
      ->check(within(1, 2000));
  app.add_option("--partitions", options.partitions,
                 "Data sets PREFIX_<i>_<key>_document with lines in round-robin order, merged at the end")
      ->capture_default_str()
      ->check(within(1, 4096));
  app.add_flag("--keep-sequential-samples", options.keep_sequential,
               "Partitions are consecutive ranges of lines, which keeps the order");
  app.add_flag("--split-sentences", flags.split_sentences,
               "Split texts into sentences with Punkt, as PREFIX_<key>_sentence");
  app.add_option("--punkt-model", flags.punkt_model,
                 "Folder of NLTK's punkt_tab files; default $NLTK_DATA/tokenizers/punkt_tab/LANG");
  app.add_option("--lang", flags.lang, "Language of --split-sentences")->capture_default_str();
  app.add_flag("--keep-newlines", options.keep_newlines,
               "Sentences keep their trailing white space; whole texts always do");
  app.add_option("--dataset-impl", flags.dataset_impl,
                 "Data set format; mmap is the only one, accepted for compatibility")
      ->capture_default_str();
  add_speed_flags(app, flags);
  add_tokenizer_flags(app, flags.tokenizer);
  add_no_op_flags(app, flags);
}

/// Flags of older versions of tools/preprocess_data.py that are not supported.
const std::map<std::string, std::string>& unsupported() {
  static const std::map<std::string, std::string> reasons = {
      {"--performance-dir",
       "is not supported, since --find-optimal-num-workers logs its results; got this flag; redirect "
       "standard error"}};
  return reasons;
}

/// Folder of the Punkt model.
std::string punkt_folder(const Flags& flags) {
  if (!flags.punkt_model.empty()) return flags.punkt_model;
  const char* data = std::getenv("NLTK_DATA");
  return data == nullptr ? "" : fmt::format("{}/tokenizers/punkt_tab/{}", data, flags.lang);
}

/// Errors for contradicting flags and for flags without effect; Megatron's defaults are allowed.
std::vector<std::string> faults_of(const Flags& flags) {
  const Flags defaults;
  std::vector<std::string> faults;
  const auto reject_if = [&](bool wrong, const std::string& fault) {
    if (wrong) faults.push_back(fault);
  };
  const std::string folder = punkt_folder(flags);
  reject_if(flags.split_sentences && !std::filesystem::is_directory(folder),
            fmt::format(
                "--split-sentences requires a folder with a Punkt model; got {}; get one with `python3 -m "
                "nltk.downloader punkt_tab` and give e.g. --punkt-model ~/nltk_data/tokenizers/punkt_tab/{}",
                folder.empty() ? "neither --punkt-model nor NLTK_DATA" : folder + ", which is no folder",
                flags.lang));
  reject_if(!flags.split_sentences && !flags.punkt_model.empty(),
            fmt::format("--punkt-model requires --split-sentences; got {} without it; give both or neither",
                        flags.punkt_model));
  reject_if(!flags.split_sentences && flags.lang != defaults.lang,
            fmt::format(
                "--lang requires --split-sentences; got {} without it; remove it, texts of any language are "
                "read",
                flags.lang));
  reject_if(flags.dataset_impl != defaults.dataset_impl,
            fmt::format("--dataset-impl must be mmap, the only data set format; got {}; remove it",
                        flags.dataset_impl));
  reject_if(
      !flags.find_workers && flags.workers_to_check != defaults.workers_to_check,
      fmt::format("--workers-to-check requires --find-optimal-num-workers; got {} without it; give both "
                  "or --workers",
                  fmt::join(flags.workers_to_check, " ")));
  reject_if(!flags.find_workers && flags.max_documents != defaults.max_documents,
            fmt::format("--max-documents requires --find-optimal-num-workers; got {} without it; remove it, "
                        "all documents are read",
                        flags.max_documents));
  const std::int64_t last = flags.tokenizer.vocab_size - 1;
  reject_if(
      flags.tokenizer.type == "NullTokenizer" && flags.null_eod.value_or(last) != last,
      fmt::format("--null-tokenizer-eod-id must be the last id, {} with --vocab-size {}; got {}; remove it, "
                  "or change --vocab-size",
                  last, last + 1, flags.null_eod.value_or(last)));
  reject_if(flags.tokenizer.type == "NullTokenizer" && flags.null_pad != defaults.null_pad,
            fmt::format("--null-tokenizer-pad-id must be -1, since no id is a pad; got {}; remove it",
                        flags.null_pad));
  return faults;
}

/// Identity of the tokenizer: its flags, and size and modification time of its files.
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
    for (const auto& entry : sorted_entries(path))
      if (entry.is_regular_file()) files.insert(entry.path());
    std::ranges::for_each(files, add);
  }
  return identity;
}

void find_workers(const Flags& flags, const tokenizers::Tokenizer& tokens) {
  const std::vector<double> rates =
      preprocess::measure_preprocess(flags.options, tokens, flags.workers_to_check, flags.max_documents);
  for (std::size_t i = 0; i < rates.size(); ++i)
    log::info("{} workers: {:.0f} documents/s", flags.workers_to_check[i], rates[i]);
  const auto best = std::max_element(rates.begin(), rates.end()) - rates.begin();
  log::info("the fastest is --workers {}; nothing was written",
            flags.workers_to_check[static_cast<std::size_t>(best)]);
}

void convert(const Flags& flags, const tokenizers::Tokenizer& tokens) {
  constexpr int kReportedLines = 100;
  Reporter reporter(flags.log_interval);
  StopSignals signals;
  signals.defer();
  int reported = 0;
  preprocess::PreprocessEvents events;
  events.progress = [&reporter](const preprocess::PreprocessProgress& progress) { reporter(progress); };
  events.note = [](const std::string& text) { log::info("{}", text); };
  events.stop = [&signals] { return signals.requested() != 0; };
  events.skipped = [&reported](const std::string& why) {
    if (++reported <= kReportedLines) log::warning("skipped: {}", why);
    if (reported == kReportedLines) log::warning("skipped: later lines are only counted");
  };
  reporter.print("done:", preprocess::preprocess(flags.options, tokens, events));
}

}  // namespace

Offers preprocess_offers() {
  CLI::App app("", "preprocess");
  Flags flags;
  add_flags(app, flags);
  return offers_of(app, "preprocess");
}

int preprocess(const Arguments& arguments) {
  CLI::App app("", "preprocess");
  Flags flags;
  add_flags(app, flags);
  if (!read_flags(app, arguments, unsupported())) return kExitDone;
  config::require_none(faults_of(flags));
  for (const NoOpFlag& no_op : kNoOp)
    if (app.get_option(no_op.flag)->count() > 0) log::info("{}: {}", no_op.flag, no_op_reason(no_op));
  if (flags.options.keep_newlines && !flags.split_sentences)
    log::info("--keep-newlines: has no effect without --split-sentences; texts keep their line breaks");
  if (flags.split_sentences) flags.options.punkt_model = punkt_folder(flags);
  flags.options.skip_bad_lines = flags.on_error == "skip";
  flags.options.longest_line = flags.max_document_mb << 20;
  flags.options.inputs = corpus::input_files(flags.inputs);
  flags.options.tokenizer_identity = identity_of(flags.tokenizer);
  const auto tokens = tokenizers::make_tokenizer(flags.tokenizer);
  if (flags.find_workers) {
    find_workers(flags, *tokens);
  } else {
    convert(flags, *tokens);
  }
  return kExitDone;
}

}  // namespace colonnade::app
