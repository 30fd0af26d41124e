// `colonnade data inspect`: contents of data sets, and the samples that a run with these settings reads.
#include "colonnade/data/indexed/inspect.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/data/blend.h"
#include "colonnade/data/dataset_usage.h"
#include "colonnade/data/indexed/indexed_dataset.h"
#include "colonnade/data/sample_description.h"
#include "colonnade/data/samples/sft/sft_conversations.h"
#include "colonnade/data/samples/sft/sft_dataset.h"
#include "colonnade/job/prepare.h"
#include "data.h"
#include "extras.h"
#include "inspect_settings.h"

namespace colonnade::app {
namespace {

using nlohmann::ordered_json;

ordered_json or_null(const std::optional<std::int64_t>& number) {
  return number ? ordered_json(*number) : nullptr;
}

/// Adds document lengths and token checks of a data set.
void add_contents(const data::TokenSource& source, const Inspection& asked,
                  const tokenizers::Tokenizer* tokenizer, ordered_json& about) {
  const data::LengthHistogram lengths = data::document_lengths(source);
  if (lengths.count() > 0) {
    about["shortest"] = lengths.quantile(0);
    about["median"] = lengths.quantile(0.5);
    about["longest"] = lengths.quantile(1);
    about["empty"] = lengths.empty();
  }
  if (asked.options.longer_than > 0) about["longer"] = lengths.longer_than(asked.options.longer_than);
  if (!asked.options.check_tokens) return;
  data::TokenChecks checks{.vocab_size = asked.run.model.vocab_size};
  if (tokenizer != nullptr) {
    checks.vocab_size = tokenizer->vocab_size();
    if (!asked.run.data.sft) checks.eod = tokenizer->eod();
  }
  const data::TokenFacts facts = data::scan_tokens(source, checks);
  about["highest_id"] = facts.max_id;
  if (checks.vocab_size > 0) {
    about["beyond_vocabulary"] = facts.out_of_vocabulary;
    about["first_beyond"] = or_null(facts.first_out_of_vocabulary);
  }
  if (checks.eod >= 0) {
    about["without_end"] = facts.without_eod;
    about["first_without_end"] = or_null(facts.first_without_eod);
  }
  about["repeated_documents"] = facts.duplicates;
  about["repeated_tokens"] = facts.duplicate_tokens;
  about["repeats"] = facts.duplicate_pairs;
}

ordered_json describe(const std::string& prefix, const Inspection& asked,
                      const tokenizers::Tokenizer* tokenizer) {
  const data::IndexedDataset set(prefix);
  ordered_json about{{"prefix", set.name()},
                     {"type", data::to_string(set.type())},
                     {"documents", set.num_documents()},
                     {"sequences", set.num_sequences()},
                     {"tokens", set.num_tokens()}};
  add_contents(set, asked, tokenizer, about);
  return about;
}

ordered_json describe_chats(const data::SftDataset& samples, const Inspection& asked,
                            const tokenizers::Tokenizer& tokenizer) {
  const data::TokenSource& source = samples.source();
  std::int64_t tokens = 0, answers = 0;
  std::vector<std::int64_t> text;
  for (std::int64_t i = 0; i < source.num_sequences(); ++i) {
    text.resize(static_cast<std::size_t>(source.length(i)));
    source.tokens(i, 0, text);
    tokens += source.length(i);
    answers +=
        std::ranges::count_if(text, [](std::int64_t token) { return (token & data::kAnswerToken) != 0; });
  }
  ordered_json about{{"prefix", source.name()},
                     {"conversations", source.num_sequences()},
                     {"tokens", tokens},
                     {"answer_tokens", answers}};
  add_contents(source, asked, &tokenizer, about);
  return about;
}

/// Mock data have no files; only the range of the split is reported.
ordered_json describe_mock(const data::SampleSource& source) {
  const data::SampleOrder order = source.orders().at(0);
  return {{"prefix", order.name}, {"sequences", order.sequences.size()}, {"tokens", order.tokens}};
}

/// Number of samples that a run requesting `asked` reads; the split may hold more, since epochs are complete.
std::int64_t samples_read(const data::Batches& batches, std::int64_t asked) {
  return batches.is_cyclic() ? asked : std::min(asked, batches.size());
}

/// Adds how often the requested samples read each data set.
void add_usage_report(const data::Batches& batches, std::int64_t samples, ordered_json& sets) {
  const data::SampleSource& source = batches.samples();
  std::vector<data::DatasetUsage> uses;
  for (const data::SampleOrder& order : source.orders()) uses.emplace_back(order);
  std::vector<data::DatasetUsage*> pointers;
  for (data::DatasetUsage& use : uses) pointers.push_back(&use);
  for (std::int64_t i = 0; i < samples_read(batches, samples); ++i)
    data::add_usage(source, batches.sample_of(i), i, pointers);
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const data::DatasetUsage::Sequences sequences = uses[i].sequences();
    sets[i]["samples"] = uses[i].samples();
    sets[i]["epochs"] = uses[i].epochs();
    sets[i]["sequences_read"] = sequences.read;
    sets[i]["read_again"] = sequences.repeated;
    sets[i]["first_again"] = or_null(uses[i].first_repeat());
  }
}

ordered_json describe_samples(const data::Batches& batches, const Inspection& asked,
                              const tokenizers::Tokenizer* tokenizer) {
  const InspectOptions& options = asked.options;
  const std::int64_t end = samples_read(batches, options.samples);
  if (options.from > 0 && options.from >= end)
    throw ConfigError(fmt::format(
        "--from must be one of the requested samples, 0 to {}; got {}; raise --samples or lower --from",
        end - 1, options.from));
  const data::SampleDescriber describer(asked.run, tokenizer, options.show_tokens);
  ordered_json all = ordered_json::array();
  for (std::int64_t i = options.from; i < std::min(end, options.shown_end()); ++i) {
    const auto pieces = batches.samples().spans(batches.sample_of(i));
    ordered_json shown{{"sample", i}, {"data_set", pieces.empty() ? 0 : pieces[0].set}};
    describer.add(batches, i, shown);
    all.push_back(std::move(shown));
  }
  return all;
}

std::string quoted(const ordered_json& text) {
  return text.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

/// Repeated reads are counted by the starts of sequences, which the label says more clearly than the JSON
/// key.
std::string label(const std::string& key) { return key == "read_again" ? "begun_again" : key; }

void print(const ordered_json& report) {
  for (const auto& set : report["data_sets"]) {
    for (const auto& [key, value] : set.items())
      fmt::print("{:<18} {}\n", label(key), value.is_string() ? value.get<std::string>() : quoted(value));
    fmt::print("\n");
  }
  if (!report.contains("samples")) return;
  fmt::print("{}: {} samples requested\n", report["split"].get<std::string>(), report["asked"].dump());
  for (const auto& sample : report["samples"])
    fmt::print("sample {}, data set {}\n{}", sample["sample"].dump(), sample["data_set"].dump(),
               data::description_text(sample));
}

/// The chat data sets of --sft: one, or those of a blend.
std::vector<const data::SftDataset*> chat_sets(const data::SampleSource& source) {
  if (const auto* one = dynamic_cast<const data::SftDataset*>(&source)) return {one};
  std::vector<const data::SftDataset*> sets;
  for (const auto& each : dynamic_cast<const data::BlendedDataset&>(source).datasets())
    sets.push_back(&dynamic_cast<const data::SftDataset&>(*each));
  return sets;
}

std::unique_ptr<data::Batches> open_samples(Inspection& asked, const tokenizers::Tokenizer* tokenizer) {
  const std::size_t split = asked.options.split_index();
  data::SampleCounts counts{0, 0, 0};
  counts[split] = asked.options.one_pass ? std::nullopt : std::optional(asked.options.samples);
  data::Splits splits = job::open_batches(asked.run, tokenizer, {.counts = counts});
  if (splits[split] == nullptr)
    throw DataError(fmt::format(
        "data: the {} split must hold samples; got none; correct --split, --split-name or the paths",
        asked.options.split_name()));
  if (asked.options.one_pass) asked.options.samples = splits[split]->size();
  return std::move(splits[split]);
}

void inspect(Inspection asked) {
  const auto tokenizer = job::tokenizer_of(asked.run);
  const config::Data& d = asked.run.data;
  data::Blend blend;
  if (!d.mock_data) blend = data::parse_blend(paths_of(asked.run, asked.options.split));
  ordered_json sets = ordered_json::array();
  if (!d.sft)
    for (const std::string& prefix : blend.prefixes) sets.push_back(describe(prefix, asked, tokenizer.get()));
  std::unique_ptr<data::Batches> batches;
  if (asked.options.samples > 0) batches = open_samples(asked, tokenizer.get());
  if (batches != nullptr && d.mock_data) sets.push_back(describe_mock(batches->samples()));
  if (batches != nullptr && d.sft)
    for (const data::SftDataset* set : chat_sets(batches->samples()))
      sets.push_back(describe_chats(*set, asked, *tokenizer));
  for (std::size_t i = 0; i < blend.weights.size() && i < sets.size(); ++i)
    sets[i]["weight"] = blend.weights[i];
  if (batches != nullptr) add_usage_report(*batches, asked.options.samples, sets);
  ordered_json report{{"data_sets", std::move(sets)}};
  if (batches != nullptr) {
    report["split"] = asked.options.split_name();
    report["asked"] = asked.options.samples;
    report["samples"] = describe_samples(*batches, asked, tokenizer.get());
  }
  print(report);
  if (!asked.options.json.empty())
    write_file_atomically(asked.options.json,
                          report.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace

Offers data_inspect_offers() { return {{"data", "inspect", inspect_extras(), config::Use::kInspect}}; }

int data_inspect(const Arguments& arguments) {
  if (print_verb_help(arguments, {"data inspect [PREFIX ... | WEIGHT PREFIX ...] [--config FILE]",
                                  inspect_extras(), config::Use::kInspect}))
    return kExitDone;
  const Inspection asked = read_inspection(arguments);
  for (const std::string& note : asked.run.notes) log::info("{}", note);
  if (asked.options.uses_default_samples)
    log::info("--samples determines the sample order and is not set; using {}, from --from and --show",
              asked.options.samples);
  inspect(asked);
  return kExitDone;
}

}  // namespace colonnade::app
