// `colonnade data inspect`: what a data set or a blend holds, and what a run would read of it.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/data/describe.h"
#include "colonnade/data/indexed_dataset.h"
#include "colonnade/data/inspect.h"
#include "colonnade/data/sample_use.h"
#include "colonnade/data/sft_conversations.h"
#include "colonnade/data/sft_dataset.h"
#include "colonnade/job/prepare.h"
#include "data.h"
#include "flags.h"
#include "tokenizer_flags.h"

namespace colonnade::app {
namespace {

using nlohmann::ordered_json;

struct Options {
  std::string json;
  config::Run run;  ///< as far as it decides the samples
  std::int64_t samples = 1;
  std::int64_t show = 3, from = 0, show_tokens = 16;
  std::int64_t longer_than = 0;
  bool check_tokens = false;
  bool one_part = false;  ///< samples of a BERT without a sentence order
  data::TokenizerOptions tokenizer;
};

/// Flags that say something of samples, and so need --seq-length.
constexpr const char* kOfSamples[] = {"--samples",     "--split",           "--seed", "--show",    "--from",
                                      "--show-tokens", "--data-cache-path", "--sft",  "--fim-data"};
/// What decides the samples of one family alone.
constexpr const char* kOfGpt[] = {"--sft", "--fim-data"};
constexpr const char* kOfMasked[] = {"--mask-prob", "--short-seq-prob"};
constexpr const char* kOfT5[] = {"--decoder-seq-length", "--vocab-extra-ids"};
constexpr const char* kOfBert[] = {"--bert-no-binary-head"};
constexpr const char* kOfFim[] = {"--fim-rate",          "--fim-spm-rate",     "--fim-split-sample",
                                  "--fim-fragment-rate", "--fim-no-prefix",    "--fim-prefix-token",
                                  "--fim-middle-token",  "--fim-suffix-token", "--fim-pad-token",
                                  "--fim-eod-token"};
/// Flags that say how chat messages become samples.
constexpr const char* kOfChats[] = {"--chat-template", "--sft-tokenizer-prompt-format",
                                    "--reset-position-ids", "--reset-attention-mask"};

CLI::Validator share() {
  const auto check = [](const std::string& word) -> std::string {
    double value = -1;
    if (CLI::detail::lexical_cast(word, value) && value >= 0 && value <= 1) return "";
    return fmt::format("must be a number, 0 to 1; got '{}'; write e.g. 0.15", word);
  };
  return {check, "0 to 1"};
}

CLI::Validator family() {
  const auto check = [](const std::string& word) -> std::string {
    if (word == "gpt" || word == "bert" || word == "t5") return "";
    return fmt::format("must be gpt, bert or t5; got '{}'; write one of them", word);
  };
  return {check, "gpt|bert|t5"};
}

void add_masked_flags(CLI::App& app, Options& options) {
  config::Run& run = options.run;
  app.add_option("--family", run.family, "Whose samples: gpt, bert or t5, as after `pretrain`")
      ->check(family())
      ->capture_default_str();
  app.add_option("--decoder-seq-length", run.training.decoder_seq_length,
                 "Of T5: tokens of its decoder's sample")
      ->check(within(1));
  app.add_option("--vocab-extra-ids", run.data.vocab_extra_ids, "Of T5: sentinels behind the tokenizer's ids")
      ->check(within(0));
  app.add_option("--mask-prob", run.data.mask_prob, "Of BERT and T5: share of the tokens that are hidden")
      ->check(share())
      ->capture_default_str();
  app.add_option("--short-seq-prob", run.data.short_seq_prob, "Of BERT and T5: share of shorter samples")
      ->check(share())
      ->capture_default_str();
  app.add_flag("--bert-no-binary-head", options.one_part, "Of BERT: samples have one part, not two");
}

void add_fim_flags(CLI::App& app, config::FillInTheMiddle& fim) {
  app.add_flag("--fim-data", fim.enabled, "Of GPT: fill-in-the-middle, with the flags of a run");
  app.add_option("--fim-rate", fim.rate, "With --fim-data: as of a run")
      ->check(share())
      ->capture_default_str();
  app.add_option("--fim-spm-rate", fim.spm_rate, "The same")->check(share())->capture_default_str();
  app.add_option("--fim-split-sample", fim.split_sample, "The same");
  app.add_option("--fim-fragment-rate", fim.fragment_rate, "The same")->check(share());
  app.add_option("--fim-no-prefix", fim.no_prefix, "The same");
  app.add_option("--fim-prefix-token", fim.prefix_token, "The same")->capture_default_str();
  app.add_option("--fim-middle-token", fim.middle_token, "The same")->capture_default_str();
  app.add_option("--fim-suffix-token", fim.suffix_token, "The same")->capture_default_str();
  app.add_option("--fim-pad-token", fim.pad_token, "The same")->capture_default_str();
  app.add_option("--fim-eod-token", fim.eod_token, "The same")->capture_default_str();
}

void add_inspect_flags(CLI::App& app, Options& options) {
  config::Data& data = options.run.data;
  config::Training& training = options.run.training;
  data.split = "1";
  app.description(
      "Checks data sets and says what they hold: tokens, documents, lengths; with --check-tokens what is odd about "
      "them,\n"
      "and with --seq-length the epochs and samples of a run.\n"
      "  colonnade data inspect books_text_document --seq-length 1024 --samples 100000\n"
      "  colonnade data inspect chats/ --sft --seq-length 4096 --tokenizer-type HuggingFaceTokenizer "
      "--tokenizer-model llama-3/\n"
      "  colonnade data inspect books_text_sentence --family bert --seq-length 512 --tokenizer-type "
      "BertWordPieceLowerCase --vocab-file vocab.txt");
  app.add_option("prefix", data.data_path, "PREFIX ... or WEIGHT PREFIX ..., as --data-path takes them")
      ->required();
  app.add_option("--json", options.json, "Write the same as JSON to this file");
  app.add_flag(
      "--check-tokens", options.check_tokens,
      "Read every token: the highest id, ids beyond the vocabulary, documents without their end, equal "
      "documents");
  app.add_option("--longer-than", options.longer_than, "Count documents of more tokens than this")
      ->check(within(1));
  app.add_option("--seq-length", training.seq_length, "Tokens of a sample; of T5, of its encoder")
      ->check(within(1));
  app.add_option("--samples", options.samples, "Training samples of the run")
      ->check(within(1))
      ->capture_default_str();
  app.add_option("--split", data.split, "Parts for train, valid, test")->capture_default_str();
  app.add_option("--seed", training.seed, "Decides the order of the samples")->capture_default_str();
  app.add_option("--show", options.show, "Samples to show")->check(within(0, 100'000))->capture_default_str();
  app.add_option("--from", options.from, "The first sample to show")->check(within(0))->capture_default_str();
  app.add_option("--show-tokens", options.show_tokens, "Tokens of a piece of a sample to show")
      ->check(within(1))
      ->capture_default_str();
  app.add_option("--data-cache-path", data.data_cache_path, "Folder of indices; without it beside the data");
  app.add_flag("--sft", data.sft, "Data are files of chat messages");
  app.add_option("--chat-template", data.chat_template, "With --sft: as of a run");
  app.add_option("--sft-tokenizer-prompt-format", data.sft_tokenizer_prompt_format,
                 "With --sft: as of a run");
  app.add_flag("--reset-position-ids", data.reset_position_ids,
               "With --sft and the next one: samples are packed");
  app.add_flag("--reset-attention-mask", data.reset_attention_mask, "With --sft: see above");
  add_masked_flags(app, options);
  add_fim_flags(app, data.fim);
  add_tokenizer_flags(app, options.tokenizer);
}

/// Refuses `flags`, which only samples of `families` follow.
void refuse_of_family(const CLI::App& app, std::span<const char* const> flags, const char* families,
                      const std::string& family) {
  for (const char* flag : flags)
    if (app.get_option(flag)->count() > 0)
      throw ConfigError(
          fmt::format("{}: is read with --family {}; got --family {}; change it, or leave {} out", flag,
                      families, family, flag));
}

void require_use(const CLI::App& app, const Options& options) {
  const std::string& family = options.run.family;
  if (options.run.training.seq_length == 0) {
    refuse_given(app, kOfSamples, "--seq-length");
    refuse_given(app, std::array{"--family"}, "--seq-length");
  }
  if (family != "gpt") refuse_of_family(app, kOfGpt, "gpt", family);
  if (family == "gpt") refuse_of_family(app, kOfMasked, "bert or t5", family);
  if (family != "t5") refuse_of_family(app, kOfT5, "t5", family);
  if (family != "bert") refuse_of_family(app, kOfBert, "bert", family);
  if (!options.run.data.fim.enabled) refuse_given(app, kOfFim, "--fim-data");
  if (options.run.data.fim.enabled && options.run.data.sft)
    throw ConfigError(
        "--fim-data: cuts documents, and --sft reads conversations; got both; leave one of them out");
  if (!options.run.data.sft) refuse_given(app, kOfChats, "--sft");
  if (options.tokenizer.type.empty()) {
    refuse_given(app, kOfTokenizers, "--tokenizer-type");
    if (!options.check_tokens && family == "gpt")
      refuse_given(app, std::array{"--vocab-size"}, "--tokenizer-type or --check-tokens");
  }
  if (options.run.data.reset_position_ids != options.run.data.reset_attention_mask)
    throw ConfigError(
        "--reset-position-ids: packed samples need it beside --reset-attention-mask; got one of them; give both or "
        "none");
  if (options.run.data.sft && options.tokenizer.type.empty())
    throw ConfigError("--sft: text needs a tokenizer; got none; add --tokenizer-type and --tokenizer-model");
}

ordered_json or_null(const std::optional<std::int64_t>& number) {
  return number ? ordered_json(*number) : nullptr;
}

/// What every data set has: sizes, and what is odd about it.
void add_contents(const data::TokenSource& source, const Options& options, const data::Tokenizer* tokenizer,
                  ordered_json& about) {
  const data::Lengths lengths = data::document_lengths(source);
  if (lengths.count() > 0) {
    about["shortest"] = lengths.quantile(0);
    about["median"] = lengths.quantile(0.5);
    about["longest"] = lengths.quantile(1);
    about["empty"] = lengths.empty();
  }
  if (options.longer_than > 0) about["longer"] = lengths.longer_than(options.longer_than);
  if (!options.check_tokens) return;
  data::TokenChecks checks{.vocab_size = options.tokenizer.vocab_size};
  if (tokenizer != nullptr) {
    checks.vocab_size = tokenizer->vocab_size();
    if (!options.run.data.sft) checks.eod = tokenizer->eod();
  }
  const data::TokenFacts facts = data::read_tokens(source, checks);
  about["highest_id"] = facts.highest;
  if (checks.vocab_size > 0) {
    about["beyond_vocabulary"] = facts.beyond;
    about["first_beyond"] = or_null(facts.first_beyond);
  }
  if (checks.eod >= 0) {
    about["without_end"] = facts.unended;
    about["first_without_end"] = or_null(facts.first_unended);
  }
  about["repeated_documents"] = facts.repeated;
  about["repeated_tokens"] = facts.repeated_tokens;
  about["repeats"] = facts.repeats;
}

ordered_json describe(const std::string& prefix, const Options& options, const data::Tokenizer* tokenizer) {
  const data::IndexedDataset set(prefix);
  ordered_json about{{"prefix", set.name()},
                     {"type", data::to_string(set.type())},
                     {"documents", set.num_documents()},
                     {"sequences", set.num_sequences()},
                     {"tokens", set.num_tokens()}};
  add_contents(set, options, tokenizer, about);
  return about;
}

ordered_json describe_chats(const data::SftDataset& samples, const Options& options,
                            const data::Tokenizer& tokenizer) {
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
  add_contents(source, options, &tokenizer, about);
  return about;
}

/// How often the samples of a run pass through each data set.
void add_use(const data::SampleSource& source, std::int64_t samples, ordered_json& sets) {
  std::vector<data::SetUse> uses;
  for (const data::SampleOrder& order : source.orders()) uses.emplace_back(order);
  std::vector<data::SetUse*> pointers;
  for (data::SetUse& use : uses) pointers.push_back(&use);
  for (std::int64_t i = 0; i < std::min(samples, source.size()); ++i) data::add_use(source, i, i, pointers);
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const data::SetUse::Sequences sequences = uses[i].sequences();
    sets[i]["samples"] = uses[i].samples();
    sets[i]["epochs"] = uses[i].epochs();
    sets[i]["sequences_read"] = sequences.read;
    sets[i]["read_again"] = sequences.again;
    sets[i]["first_again"] = or_null(uses[i].first_again());
  }
}

ordered_json samples_shown(const data::Batches& batches, const Options& options,
                           const data::Tokenizer* tokenizer) {
  const data::SampleSource& source = batches.samples();
  if (options.from > 0 && options.from >= source.size())
    throw ConfigError(
        fmt::format("--from: must be one of the samples 0 to {}; got {}; raise --samples, or lower it",
                    source.size() - 1, options.from));
  const data::SampleDescriber describer(options.run, tokenizer, options.show_tokens);
  ordered_json all = ordered_json::array();
  for (std::int64_t i = options.from; i < std::min(options.from + options.show, source.size()); ++i) {
    const auto pieces = source.pieces(i);
    ordered_json shown{{"sample", i}, {"data_set", pieces.empty() ? 0 : pieces[0].set}};
    describer.add(batches, i, shown);
    all.push_back(std::move(shown));
  }
  return all;
}

std::string quoted(const ordered_json& text) {
  return text.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

/// What is counted of sequences that are read again is that they are begun again.
std::string label(const std::string& key) {
  return key == "read_again" ? "begun_again" : key == "first_again" ? "first_begun_again" : key;
}

void print(const ordered_json& report) {
  for (const auto& set : report["data_sets"]) {
    for (const auto& [key, value] : set.items())
      fmt::print("{:<18} {}\n", label(key), value.is_string() ? value.get<std::string>() : quoted(value));
    fmt::print("\n");
  }
  if (!report.contains("samples")) return;
  for (const auto& sample : report["samples"])
    fmt::print("sample {}, data set {}\n{}", sample["sample"].dump(), sample["data_set"].dump(),
               data::described_text(sample));
}

/// Samples of --sft: of one data set, or of a blend.
std::vector<const data::SftDataset*> chat_sets(const data::SampleSource& source) {
  if (const auto* one = dynamic_cast<const data::SftDataset*>(&source)) return {one};
  std::vector<const data::SftDataset*> sets;
  for (const auto& each : dynamic_cast<const data::BlendedDataset&>(source).datasets())
    sets.push_back(&dynamic_cast<const data::SftDataset&>(*each));
  return sets;
}

/// Completes the run, by which it knows its indices, as far as flags of verbs say it otherwise.
void complete(Options& options) {
  config::Run& run = options.run;
  run.data.tokenizer_type = options.tokenizer.type;
  run.data.tokenizer_model = options.tokenizer.model;
  run.data.vocab_file = options.tokenizer.vocab_file;
  run.data.merge_file = options.tokenizer.merge_file;
  run.data.tokenizer_hf_include_special_tokens = options.tokenizer.special_in_documents;
  run.data.tiktoken_pattern = options.tokenizer.tiktoken_pattern;
  run.data.tiktoken_num_special_tokens = options.tokenizer.tiktoken_num_special;
  run.model.vocab_size = options.tokenizer.vocab_size;
  run.model.bidirectional = run.family == "bert";
  run.model.bert_binary_head = run.model.bidirectional && !options.one_part;
  run.model.encoder_num_layers = run.family == "t5" ? 1 : 0;
  run.training.train_samples = options.samples;
  run.training.global_batch_size = 1;
  run.training.eval_iters = 0;
}

void inspect(const Options& options) {
  const config::Run& run = options.run;
  const data::Blend blend = data::parse_blend(run.data.data_path);
  const auto tokenizer = options.tokenizer.type.empty() ? nullptr : data::make_tokenizer(options.tokenizer);
  ordered_json report;
  ordered_json& sets = report["data_sets"] = ordered_json::array();
  if (!run.data.sft)
    for (const std::string& prefix : blend.prefixes)
      sets.push_back(describe(prefix, options, tokenizer.get()));
  data::Splits splits;
  if (run.training.seq_length > 0)
    splits = job::open_batches(run, tokenizer.get(), {.counts = {{options.samples, 0, 0}}});
  const data::Batches* train = splits[0].get();
  if (run.data.sft && train != nullptr)
    for (const data::SftDataset* set : chat_sets(train->samples()))
      sets.push_back(describe_chats(*set, options, *tokenizer));
  for (std::size_t i = 0; i < blend.weights.size() && i < sets.size(); ++i)
    sets[i]["weight"] = blend.weights[i];
  if (train != nullptr) {
    add_use(train->samples(), options.samples, sets);
    report["samples"] = samples_shown(*train, options, tokenizer.get());
  }
  print(report);
  if (!options.json.empty())
    write_file_atomically(options.json,
                          report.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace

Offers data_inspect_offers() {
  CLI::App app("", "data inspect");
  Options options;
  add_inspect_flags(app, options);
  return offers_of(app, "data", "inspect");
}

int data_inspect(const Arguments& arguments) {
  CLI::App app("", "data inspect");
  Options options;
  add_inspect_flags(app, options);
  if (!read_flags(app, arguments)) return kExitDone;
  require_use(app, options);
  complete(options);
  require_writable("--json", options.json);
  inspect(options);
  return kExitDone;
}

}  // namespace colonnade::app
