// `colonnade data inspect | merge | images`: what a data set or a blend holds, and what a run would see of it
// first; several data sets as one.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/data/gpt_batches.h"
#include "colonnade/data/indexed_dataset.h"
#include "colonnade/data/merge_sets.h"
#include "data_images.h"
#include "flags.h"
#include "tokenizer_flags.h"
#include "verbs.h"

namespace colonnade::app {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kShownTokens = 16;

struct Options {
  std::vector<std::string> words;
  std::string json;
  std::string split = "1";
  std::int64_t seq_length = 0;
  std::int64_t samples = 1;
  std::int64_t seed = 1234;
  std::int64_t show = 3;
  data::TokenizerOptions tokenizer;
};

/// Counts and sizes of one data set.
ordered_json describe(const std::string& prefix) {
  const data::IndexedDataset set(prefix);
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < set.num_sequences(); ++i) lengths.push_back(set.length(i));
  std::sort(lengths.begin(), lengths.end());
  ordered_json about{{"prefix", set.name()},
                     {"type", data::to_string(set.type())},
                     {"documents", set.num_documents()},
                     {"sequences", set.num_sequences()},
                     {"tokens", set.num_tokens()}};
  if (!lengths.empty()) {
    about["shortest"] = lengths.front();
    about["median"] = lengths[lengths.size() / 2];
    about["longest"] = lengths.back();
  }
  return about;
}

/// How often a run of `samples` passes through each data set of the training split.
void add_epochs(const data::SampleSource& source, std::int64_t samples, std::int64_t seq_length,
                ordered_json& sets) {
  std::vector<std::int64_t> taken(sets.size(), 0);
  if (const auto* blend = dynamic_cast<const data::BlendedDataset*>(&source)) {
    for (std::int64_t i = 0; i < std::min(samples, blend->size()); ++i)
      ++taken[static_cast<std::size_t>(blend->index().dataset[i])];
  } else {
    taken[0] = samples;
  }
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const auto tokens = sets[i]["tokens"].get<double>();
    sets[i]["samples"] = taken[i];
    sets[i]["epochs"] =
        tokens > 0 ? static_cast<double>(taken[i]) * static_cast<double>(seq_length) / tokens : 0.0;
  }
}

ordered_json first_samples(const data::SampleSource& source, const Options& options,
                           const data::Tokenizer* tokenizer) {
  ordered_json shown = ordered_json::array();
  for (std::int64_t i = 0; i < std::min(options.show, source.size()); ++i) {
    std::vector<std::int64_t> text(static_cast<std::size_t>(options.seq_length) + 1);
    source.tokens(i, -1, text);
    if (text.size() > kShownTokens) text.resize(kShownTokens);
    ordered_json sample{{"sample", i}, {"tokens", text}};
    if (tokenizer != nullptr)
      sample["text"] = tokenizer->decode(std::vector<std::int32_t>(text.begin(), text.end()));
    shown.push_back(std::move(sample));
  }
  return shown;
}

void print(const ordered_json& report) {
  for (const auto& set : report["data_sets"]) {
    for (const auto& [key, value] : set.items())
      fmt::print("{:<10} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
    fmt::print("\n");
  }
  if (!report.contains("first_samples")) return;
  for (const auto& sample : report["first_samples"])
    fmt::print("sample {}: {} ...\n{}", sample["sample"].dump(), sample["tokens"].dump(),
               sample.contains("text")
                   ? sample["text"].dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n"
                   : "");
}

void inspect(const Options& options) {
  const data::Blend blend = data::parse_blend(options.words);
  ordered_json report;
  report["data_sets"] = ordered_json::array();
  for (std::size_t i = 0; i < blend.prefixes.size(); ++i) {
    report["data_sets"].push_back(describe(blend.prefixes[i]));
    if (!blend.weights.empty()) report["data_sets"].back()["weight"] = blend.weights[i];
  }
  if (options.seq_length > 0) {
    config::Data settings;
    settings.data_path = options.words;
    settings.split = options.split;
    const auto tokenizer = options.tokenizer.type.empty() ? nullptr : data::make_tokenizer(options.tokenizer);
    const auto sources =
        data::open_gpt_samples(settings, {options.samples, 0, 0}, options.seq_length, options.seed, {});
    if (sources[0] != nullptr) {
      add_epochs(*sources[0], options.samples, options.seq_length, report["data_sets"]);
      report["first_samples"] = first_samples(*sources[0], options, tokenizer.get());
    }
  }
  print(report);
  if (!options.json.empty())
    write_file_atomically(options.json,
                          report.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
}

struct Merge {
  std::vector<std::string> inputs;
  std::string output_prefix;
  bool multimodal = false;
};

void merge(const Merge& options) {
  std::vector<std::string> prefixes;
  for (const std::string& input : options.inputs) {
    const bool folder = std::filesystem::is_directory(input);
    const std::vector<std::string> found =
        folder ? data::data_sets_in(input) : std::vector<std::string>{input};
    prefixes.insert(prefixes.end(), found.begin(), found.end());
  }
  const data::MergedCounts counts = data::merge_sets(prefixes, options.output_prefix, options.multimodal);
  log::info("done: {} data sets, {} documents, {} sequences, {} tokens", prefixes.size(), counts.documents,
            counts.sequences, counts.tokens);
}

void add_inspect_flags(CLI::App& app, Options& options) {
  app.description(
      "Checks data sets and says what they hold: tokens, documents, lengths, and with --seq-length the "
      "epochs and\n"
      "first samples of a run.\n"
      "  colonnade data inspect books_text_document --seq-length 1024 --samples 100000");
  app.add_option("prefix", options.words, "PREFIX ... or WEIGHT PREFIX ..., as --data-path takes them")
      ->required();
  app.add_option("--json", options.json, "Write the same as JSON to this file");
  app.add_option("--seq-length", options.seq_length, "Tokens of a sample")->check(within(1));
  app.add_option("--samples", options.samples, "Training samples of the run");
  app.add_option("--split", options.split, "Parts for train, valid, test")->capture_default_str();
  app.add_option("--seed", options.seed, "Decides the order of the samples")->capture_default_str();
  app.add_option("--show", options.show, "Samples to show")->capture_default_str();
  add_tokenizer_flags(app, options.tokenizer);
}

void add_merge_flags(CLI::App& app, Merge& options) {
  app.description(
      "Writes the documents of several data sets as one, byte for byte as Megatron's tools/merge_datasets.py.\n"
      "  colonnade data merge --input parts/ --output-prefix all_text_document");
  app.add_option("--input", options.inputs, "A folder, all of whose data sets are taken by name, or prefixes")
      ->required();
  app.add_option("--output-prefix", options.output_prefix, "Where the data set goes")->required();
  app.add_flag("--multimodal", options.multimodal, "The data sets have a mode for each sequence");
}

}  // namespace

Offers data_offers() {
  CLI::App inspect_app("", "data inspect"), merge_app("", "data merge");
  Options options;
  Merge merging;
  add_inspect_flags(inspect_app, options);
  add_merge_flags(merge_app, merging);
  Offers offers = offers_of(inspect_app, "data", "inspect");
  const Offers more = offers_of(merge_app, "data", "merge");
  offers.insert(offers.end(), more.begin(), more.end());
  const Offers images = data_images_offers();
  offers.insert(offers.end(), images.begin(), images.end());
  return offers;
}

int data(const Arguments& arguments) {
  const std::string sub = arguments.empty() ? "" : arguments[0];
  const bool help = std::find(arguments.begin(), arguments.end(), "--help") != arguments.end();
  if (sub != "inspect" && sub != "merge" && sub != "images" && !help)
    throw ConfigError(fmt::format(
        "data: must be followed by `inspect`, `merge` or `images`; got '{}'; see `colonnade help data`",
        sub));
  const Arguments rest = help ? Arguments{"--help"} : Arguments(arguments.begin() + 1, arguments.end());
  if (sub == "images") return data_images(rest);
  if (sub != "merge") {
    CLI::App app("", "data inspect");
    Options options;
    add_inspect_flags(app, options);
    if (read_flags(app, rest)) {
      require_writable("--json", options.json);
      inspect(options);
      return kExitDone;
    }
  }
  if (sub != "inspect") {
    CLI::App app("", "data merge");
    Merge options;
    add_merge_flags(app, options);
    if (read_flags(app, rest)) merge(options);
  }
  return sub == "inspect" || sub == "merge" ? kExitDone : data_images(rest);
}

}  // namespace colonnade::app
