// `colonnade data inspect`: what a data set or a blend holds, and what a run would read of it.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/data/gpt_batches.h"
#include "colonnade/data/indexed_dataset.h"
#include "colonnade/data/inspect.h"
#include "colonnade/data/sample_use.h"
#include "colonnade/data/sft_batches.h"
#include "colonnade/data/sft_conversations.h"
#include "colonnade/data/sft_dataset.h"
#include "data.h"
#include "flags.h"
#include "tokenizer_flags.h"

namespace colonnade::app {
namespace {

using nlohmann::ordered_json;

struct Options {
  std::string json;
  config::Data data;  ///< with data_path, split and what --sft needs
  std::int64_t seq_length = 0;
  std::int64_t samples = 1;
  std::int64_t seed = 1234;
  std::int64_t show = 3, from = 0, show_tokens = 16;
  std::int64_t longer_than = 0;
  bool check_tokens = false;
  data::TokenizerOptions tokenizer;
};

/// Flags that say something of samples, and so need --seq-length.
constexpr const char* kOfSamples[] = {"--samples",     "--split",           "--seed", "--show", "--from",
                                      "--show-tokens", "--data-cache-path", "--sft"};
/// Flags that say how chat messages become samples.
constexpr const char* kOfChats[] = {"--chat-template", "--sft-tokenizer-prompt-format",
                                    "--reset-position-ids", "--reset-attention-mask"};

void add_inspect_flags(CLI::App& app, Options& options) {
  config::Data& data = options.data;
  data.split = "1";
  app.description(
      "Checks data sets and says what they hold: tokens, documents, lengths; with --check-tokens what is odd about "
      "them,\n"
      "and with --seq-length the epochs and samples of a run.\n"
      "  colonnade data inspect books_text_document --seq-length 1024 --samples 100000\n"
      "  colonnade data inspect chats/ --sft --seq-length 4096 --tokenizer-type HuggingFaceTokenizer "
      "--tokenizer-model llama-3/");
  app.add_option("prefix", data.data_path, "PREFIX ... or WEIGHT PREFIX ..., as --data-path takes them")
      ->required();
  app.add_option("--json", options.json, "Write the same as JSON to this file");
  app.add_flag(
      "--check-tokens", options.check_tokens,
      "Read every token: the highest id, ids beyond the vocabulary, documents without their end, equal "
      "documents");
  app.add_option("--longer-than", options.longer_than, "Count documents of more tokens than this")
      ->check(within(1));
  app.add_option("--seq-length", options.seq_length, "Tokens of a sample")->check(within(1));
  app.add_option("--samples", options.samples, "Training samples of the run")
      ->check(within(1))
      ->capture_default_str();
  app.add_option("--split", data.split, "Parts for train, valid, test")->capture_default_str();
  app.add_option("--seed", options.seed, "Decides the order of the samples")->capture_default_str();
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
  add_tokenizer_flags(app, options.tokenizer);
}

void require_use(const CLI::App& app, const Options& options) {
  if (options.seq_length == 0) refuse_given(app, kOfSamples, "--seq-length");
  if (!options.data.sft) refuse_given(app, kOfChats, "--sft");
  if (options.tokenizer.type.empty()) {
    refuse_given(app, kOfTokenizers, "--tokenizer-type");
    if (!options.check_tokens)
      refuse_given(app, std::array{"--vocab-size"}, "--tokenizer-type or --check-tokens");
  }
  if (options.data.reset_position_ids != options.data.reset_attention_mask)
    throw ConfigError(
        "--reset-position-ids: packed samples need it beside --reset-attention-mask; got one of them; give both or "
        "none");
  if (options.data.sft && options.tokenizer.type.empty())
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
    if (!options.data.sft) checks.eod = tokenizer->eod();
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

ordered_json show(const data::SampleSource& source, const data::SamplePiece& piece, const Options& options,
                  const data::Tokenizer* tokenizer) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(piece.length));
  source.read(piece, ids);
  ids.resize(std::min(ids.size(), static_cast<std::size_t>(options.show_tokens)));
  ordered_json shown{
      {"sequence", piece.sequence}, {"offset", piece.offset}, {"length", piece.length}, {"tokens", ids}};
  if (tokenizer != nullptr)
    shown["text"] = tokenizer->decode_all(std::vector<std::int32_t>(ids.begin(), ids.end()));
  return shown;
}

ordered_json samples_shown(const data::SampleSource& source, const Options& options,
                           const data::Tokenizer* tokenizer) {
  if (options.from > 0 && options.from >= source.size())
    throw ConfigError(
        fmt::format("--from: must be one of the samples 0 to {}; got {}; raise --samples, or lower it",
                    source.size() - 1, options.from));
  ordered_json all = ordered_json::array();
  const auto orders = source.orders();
  for (std::int64_t i = options.from; i < std::min(options.from + options.show, source.size()); ++i) {
    const auto pieces = source.pieces(i);
    ordered_json shown{
        {"sample", i}, {"data_set", pieces.empty() ? 0 : pieces[0].set}, {"pieces", ordered_json::array()}};
    for (const data::SamplePiece& piece : pieces)
      shown["pieces"].push_back(show(source, piece, options, tokenizer));
    all.push_back(std::move(shown));
  }
  return all;
}

std::string quoted(const ordered_json& text) {
  return text.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

void print(const ordered_json& report) {
  for (const auto& set : report["data_sets"]) {
    for (const auto& [key, value] : set.items())
      fmt::print("{:<18} {}\n", key, value.is_string() ? value.get<std::string>() : quoted(value));
    fmt::print("\n");
  }
  if (!report.contains("samples")) return;
  for (const auto& sample : report["samples"]) {
    fmt::print("sample {}, data set {}\n", sample["sample"].dump(), sample["data_set"].dump());
    for (const auto& piece : sample["pieces"])
      fmt::print("  sequence {} from {}, {} tokens: {}{}\n", piece["sequence"].dump(), piece["offset"].dump(),
                 piece["length"].dump(), piece["tokens"].dump(),
                 piece.contains("text") ? " " + quoted(piece["text"]) : "");
  }
}

/// Samples of --sft: of one data set, or of a blend.
std::vector<const data::SftDataset*> chat_sets(const data::SampleSource& source) {
  if (const auto* one = dynamic_cast<const data::SftDataset*>(&source)) return {one};
  std::vector<const data::SftDataset*> sets;
  for (const auto& each : dynamic_cast<const data::BlendedDataset&>(source).datasets())
    sets.push_back(&dynamic_cast<const data::SftDataset&>(*each));
  return sets;
}

struct Opened {
  std::shared_ptr<const data::SampleSource> source;
  data::Splits chats;  ///< keeps the source of --sft
};

/// The training samples; none without --seq-length or where the split has none.
const data::SampleSource* open(const Options& options, const data::Tokenizer* tokenizer, Opened& opened) {
  if (options.seq_length == 0) return nullptr;
  if (!options.data.sft) {
    config::Data data = options.data;  // with the tokenizer, by which a run knows its indices
    data.tokenizer_type = options.tokenizer.type;
    data.tokenizer_model = options.tokenizer.model;
    data.vocab_file = options.tokenizer.vocab_file;
    data.merge_file = options.tokenizer.merge_file;
    data.tokenizer_hf_include_special_tokens = options.tokenizer.special_in_documents;
    data.tiktoken_pattern = options.tokenizer.tiktoken_pattern;
    data.tiktoken_num_special_tokens = options.tokenizer.tiktoken_num_special;
    opened.source = data::open_gpt_samples(data, {options.samples, 0, 0}, options.seq_length, options.seed,
                                           {.vocab_size = options.tokenizer.vocab_size})[0];
    return opened.source.get();
  }
  config::Training training;
  training.seq_length = options.seq_length;
  training.seed = options.seed;
  training.train_samples = options.samples;
  training.global_batch_size = 1;
  training.eval_iters = 0;
  config::Data data = options.data;
  data.tokenizer_model = options.tokenizer.model;
  opened.chats = data::open_sft_batches(data, training, *tokenizer, 0);
  return opened.chats[0] == nullptr ? nullptr : &opened.chats[0]->samples();
}

void inspect(const Options& options) {
  const data::Blend blend = data::parse_blend(options.data.data_path);
  const auto tokenizer = options.tokenizer.type.empty() ? nullptr : data::make_tokenizer(options.tokenizer);
  Opened opened;
  ordered_json report;
  ordered_json& sets = report["data_sets"] = ordered_json::array();
  if (!options.data.sft)
    for (const std::string& prefix : blend.prefixes)
      sets.push_back(describe(prefix, options, tokenizer.get()));
  const data::SampleSource* source = open(options, tokenizer.get(), opened);
  if (options.data.sft && source != nullptr)
    for (const data::SftDataset* set : chat_sets(*source))
      sets.push_back(describe_chats(*set, options, *tokenizer));
  for (std::size_t i = 0; i < blend.weights.size() && i < sets.size(); ++i)
    sets[i]["weight"] = blend.weights[i];
  if (source != nullptr) {
    add_use(*source, options.samples, sets);
    report["samples"] = samples_shown(*source, options, tokenizer.get());
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
  require_writable("--json", options.json);
  inspect(options);
  return kExitDone;
}

}  // namespace colonnade::app
