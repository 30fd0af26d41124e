// `colonnade tokenizer train|encode|decode|chat`.
#include "colonnade/tokenizers/tokenizer.h"

#include <iostream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/corpus/input_files.h"
#include "colonnade/preprocess/training_texts.h"
#include "colonnade/tokenizers/train_byte_bpe.h"
#include "flags.h"
#include "tokenizer_chat.h"
#include "tokenizer_flags.h"
#include "verbs.h"

namespace colonnade::app {
namespace {

void print_help() {
  fmt::print(
      "{}",
      config::render(
          {.usage = "colonnade tokenizer train|encode|decode|chat [FLAGS]",
           .about =
               "Trains a SentencePiece or byte-level BPE tokenizer, or encodes and decodes text.\n"
               "encode reads one JSON string per line and prints one array of ids per line; decode does the "
               "reverse. chat reads one object with messages per line and prints its text and answers.",
           .examples = {
               "colonnade tokenizer train --input books.jsonl --output-prefix books --vocab-size 4000",
               "echo '\"some text\"' | colonnade tokenizer encode --tokenizer-type "
               "SentencePieceTokenizer --tokenizer-model M"}}));
}

struct TrainFlags {
  tokenizers::SentencePieceTraining training;
  std::vector<std::string> inputs;
  tokenizers::ByteBpeTraining byte_bpe;
  std::string split_rule = "gpt2";
  std::string prefix;
  std::string key = "text";
  bool no_bytes = false;
};

constexpr const char* kSentencePieceFlags[] = {"--character-coverage", "--input-sentence-size",
                                               "--no-byte-fallback"};
constexpr const char* kByteBpeFlags[] = {"--split-rule", "--special-tokens", "--min-frequency"};

void add_train_flags(CLI::App& app, TrainFlags& flags) {
  tokenizers::SentencePieceTraining& training = flags.training;
  app.add_option(
         "--input", flags.inputs,
         ".jsonl (also compressed) or Parquet files, folders of them, or files with one text per line")
      ->required();
  app.add_option("--output-prefix", flags.prefix, "Output PREFIX.model, or PREFIX.json for byte-bpe")
      ->required()
      ->check(not_empty());
  app.add_option("--vocab-size", training.vocab_size, "Vocabulary size in tokens")
      ->required()
      ->check(within(1, 1'000'000));
  app.add_option("--model-type", training.model_type,
                 "bpe or unigram (SentencePiece), or byte-bpe (tokenizer.json)")
      ->capture_default_str();
  app.add_option("--split-rule", flags.split_rule,
                 "byte-bpe: split pattern of gpt2, llama3, qwen2, o200k or tekken")
      ->capture_default_str();
  app.add_option("--special-tokens", flags.byte_bpe.special_tokens,
                 "byte-bpe: special tokens, with ids from 0")
      ->capture_default_str();
  app.add_option("--min-frequency", flags.byte_bpe.min_frequency,
                 "byte-bpe: minimum frequency of a pair to be merged")
      ->capture_default_str();
  app.add_option("--json-key", flags.key, "Key of the text in .jsonl files, or column in Parquet files")
      ->capture_default_str();
  app.add_option("--character-coverage", training.character_coverage,
                 "Fraction of the text's characters that the vocabulary covers")
      ->capture_default_str();
  app.add_option("--input-sentence-size", training.max_lines,
                 "bpe and unigram: maximum training lines held in memory, sampled from the input (0: all)")
      ->check(within(0, 1'000'000'000))
      ->capture_default_str();
  app.add_flag("--no-byte-fallback", flags.no_bytes,
               "Characters without a piece become <unk> instead of bytes");
}

tokenizers::SplitPattern split_pattern_named(const std::string& name) {
  static const std::map<std::string, tokenizers::SplitPattern> kNames = {
      {"gpt2", tokenizers::SplitPattern::kGpt2},
      {"llama3", tokenizers::SplitPattern::kLlama3},
      {"qwen2", tokenizers::SplitPattern::kQwen2},
      {"o200k", tokenizers::SplitPattern::kO200k},
      {"tekken", tokenizers::SplitPattern::kTekken}};
  const auto found = kNames.find(name);
  if (found == kNames.end())
    throw ConfigError(
        fmt::format("--split-rule must be gpt2, llama3, qwen2, o200k or tekken; got '{}'; choose one", name));
  return found->second;
}

int train_byte_bpe_model(TrainFlags& flags) {
  const std::string path = flags.prefix + ".json";
  const auto texts = corpus::input_files(flags.inputs);
  require_writable("--output-prefix", path, texts);
  flags.byte_bpe.vocab_size = flags.training.vocab_size;
  flags.byte_bpe.pattern = split_pattern_named(flags.split_rule);
  write_file_atomically(path,
                        tokenizers::train_byte_bpe(preprocess::read_texts(texts, flags.key), flags.byte_bpe));
  log::info("wrote {} with {} tokens", path,
            tokenizers::make_tokenizer({.type = "HuggingFaceTokenizer", .model = path})->vocab_size());
  return kExitDone;
}

int train(const Arguments& arguments) {
  CLI::App app("Trains a tokenizer and writes PREFIX.model (SentencePiece) or PREFIX.json (byte-bpe).",
               "tokenizer train");
  TrainFlags flags;
  add_train_flags(app, flags);
  if (!read_flags(app, arguments)) return kExitDone;
  if (flags.training.model_type == "byte-bpe") {
    reject_given(app, kSentencePieceFlags, "--model-type bpe or unigram");
    return train_byte_bpe_model(flags);
  }
  reject_given(app, kByteBpeFlags, "--model-type byte-bpe");
  const auto texts = corpus::input_files(flags.inputs);
  require_writable("--output-prefix", flags.prefix + ".model", texts);
  flags.training.byte_fallback = !flags.no_bytes;
  const tokenizers::TrainedSentencePiece trained =
      tokenizers::train_sentencepiece(preprocess::read_texts(texts, flags.key), flags.training);
  write_file_atomically(flags.prefix + ".model", trained.model);
  if (trained.skipped_lines > 0)
    log::info("skipped {} lines of more than 1 MB; break them to use them", trained.skipped_lines);
  if (const std::int64_t usable = trained.lines - trained.skipped_lines, most = flags.training.max_lines;
      most > 0 && usable > most)
    log::info("trained on {} of {} lines, sampled at random; --input-sentence-size 0 uses all", most, usable);
  log::info("wrote {}.model with {} pieces", flags.prefix, flags.training.vocab_size);
  return kExitDone;
}

/// Parses a line of standard input as JSON of type T; `what` names the type in the error.
template <typename T>
T parse_line(const std::string& line, std::int64_t number, const char* what) {
  try {
    return nlohmann::json::parse(line).get<T>();
  } catch (const nlohmann::json::exception&) {
    throw DataError(fmt::format("standard input line {} must be {}; got '{}'; fix the line", number, what,
                                line.substr(0, 60)));
  }
}

std::vector<std::int32_t> parse_ids(const std::string& line, std::int64_t number) {
  std::vector<std::int32_t> ids;
  for (const auto& value : parse_line<std::vector<nlohmann::json>>(line, number, "a JSON array of ids")) {
    const bool fits =
        value.is_number_integer() && value >= 0 && value <= std::numeric_limits<std::int32_t>::max();
    if (!fits)
      throw DataError(
          fmt::format("standard input line {}: ids must be integers from 0 to {}; got {}; fix the line",
                      number, std::numeric_limits<std::int32_t>::max(), value.dump().substr(0, 60)));
    ids.push_back(value.get<std::int32_t>());
  }
  return ids;
}

struct ConvertFlags {
  tokenizers::TokenizerOptions options;
  bool special = false;
};

void add_convert_flags(CLI::App& app, ConvertFlags& flags, bool encode) {
  add_tokenizer_flags(app, flags.options);
  if (encode) {
    app.add_flag("--add-special-tokens", flags.special,
                 "Add the tokenizer's special tokens (BOS, EOS, ...) to each text");
  } else {
    app.add_flag("--keep-special-tokens", flags.special,
                 "Keep special tokens in the text instead of skipping them");
  }
}

int convert(const Arguments& arguments, bool encode) {
  CLI::App app(encode ? "Reads one JSON string per line and prints one array of ids per line."
                      : "Reads one array of ids per line and prints one JSON string per line.",
               encode ? "tokenizer encode" : "tokenizer decode");
  ConvertFlags flags;
  add_convert_flags(app, flags, encode);
  if (!read_flags(app, arguments)) return kExitDone;
  const auto tokenizer = tokenizers::make_tokenizer(flags.options);
  std::int64_t number = 0;
  for (std::string line; std::getline(std::cin, line);) {
    ++number;
    nlohmann::json result;
    if (encode) {
      const auto text = parse_line<std::string>(line, number, "a JSON string");
      result = flags.special ? tokenizer->encode_with_special(text) : tokenizer->encode(text);
    } else {
      const auto ids = parse_ids(line, number);
      result = flags.special ? tokenizer->decode_with_special(ids) : tokenizer->decode(ids);
    }
    // Ids may end inside a character: its bytes become a replacement character.
    std::cout << result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  }
  std::cout.flush();
  return kExitDone;
}

}  // namespace

Offers tokenizer_offers() {
  CLI::App train_app, encode_app, decode_app;
  TrainFlags train_flags;
  ConvertFlags encode_flags, decode_flags;
  add_train_flags(train_app, train_flags);
  add_convert_flags(encode_app, encode_flags, true);
  add_convert_flags(decode_app, decode_flags, false);
  Offers offers = offers_of(train_app, "tokenizer", "train");
  offers.push_back(offers_of(encode_app, "tokenizer", "encode").at(0));
  offers.push_back(offers_of(decode_app, "tokenizer", "decode").at(0));
  offers.push_back(tokenizer_chat_offers().at(0));
  return offers;
}

int tokenizer(const Arguments& arguments) {
  const std::string verb = arguments.empty() ? "" : arguments[0];
  const Arguments rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (verb == "train") return train(rest);
  if (verb == "encode" || verb == "decode") return convert(rest, verb == "encode");
  if (verb == "chat") return tokenizer_chat(rest);
  if (verb == "--help" || verb == "-h") {
    print_help();
    return kExitDone;
  }
  throw ConfigError(fmt::format(
      "tokenizer must be followed by train, encode, decode or chat; got '{}'; see `colonnade help tokenizer`",
      verb));
}

}  // namespace colonnade::app
