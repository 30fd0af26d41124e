// See vocab_files.h.
#include "colonnade/tokenizers/vocab_files.h"

#include <charconv>
#include <filesystem>
#include <map>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/tokenizers/json_view.h"
#include "colonnade/tokenizers/tokenizer_json.h"

namespace colonnade::tokenizers {
namespace {

using Tokens = std::vector<std::pair<std::string_view, std::int64_t>>;

std::string read_regular(const std::string& path, const char* flag) {
  if (!std::filesystem::is_regular_file(path))
    throw DataError(fmt::format("{} must be a file; got {}; check {}", path,
                                std::filesystem::exists(path) ? "a folder" : "no such file", flag));
  return read_file(path);
}

/// Calls use(line, number) for every nonempty line, without trailing carriage returns.
template <typename Use>
void for_each_line(std::string_view text, Use&& use) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (!line.empty()) use(line, number);
  }
}

AddedToken special_token(std::string content, std::int32_t id) {
  AddedToken token;
  token.content = std::move(content);
  token.id = id;
  token.special = true;
  return token;
}

TokenizerComponents byte_level_components(Vocabulary vocabulary, Merges merges, bool ignore_merges,
                                          const std::string& where) {
  TokenizerComponents components;
  BpeOptions options;
  options.ignore_merges = ignore_merges;
  components.model = std::make_unique<BpeModel>(std::move(vocabulary), std::move(merges), options, where);
  components.decoders.emplace_back(ByteLevelDecoder{});
  return components;
}

}  // namespace

std::unique_ptr<HfTokenizer> load_gpt2(const std::string& vocab_file, const std::string& merge_file) {
  const std::string json_text = read_regular(vocab_file, "--vocab-file");
  const std::string merge_text = read_regular(merge_file, "--merge-file");
  Vocabulary vocabulary = with_json(vocab_file, json_text, [&](const JsonView& json) {
    Tokens tokens;
    for (const auto& [token, value] : json.object())
      tokens.emplace_back(token, json.member(value, token).integer(0, 1 << 30));
    return Vocabulary(tokens, vocab_file);
  });
  std::vector<TextMerge> texts;
  for_each_line(merge_text, [&](std::string_view line, std::size_t number) {
    if (line.starts_with("#version")) return;
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
      throw DataError(fmt::format("{} line {} must be two tokens; got '{}'; fix the file", merge_file, number,
                                  line.substr(0, 60)));
    texts.emplace_back(line.substr(0, space), line.substr(space + 1));
  });
  if (texts.empty())
    throw DataError(fmt::format(
        "{} must have a line of two tokens for each merge; got none; copy the file again", merge_file));
  Merges merges = merges_of_texts(texts, vocabulary, "", merge_file);
  const std::int32_t end = vocabulary.id_of("<|endoftext|>");
  TokenizerComponents components =
      byte_level_components(std::move(vocabulary), std::move(merges), false, vocab_file);
  components.pre_tokenizers.emplace_back(ByteLevelPreTokenizer{.add_prefix_space = false});
  if (end >= 0) components.added.push_back(special_token("<|endoftext|>", end));
  auto tokenizer = std::make_unique<HfTokenizer>(std::move(components));
  tokenizer->set_special({end, end, end, -1});
  return tokenizer;
}

std::unique_ptr<HfTokenizer> load_bert(const std::string& vocab_file, bool lower_case) {
  const std::string text = read_regular(vocab_file, "--vocab-file");
  Tokens tokens;
  for_each_line(text, [&](std::string_view line, std::size_t number) {
    tokens.emplace_back(line, static_cast<std::int64_t>(number) - 1);
  });
  TokenizerComponents components;
  components.model =
      std::make_unique<WordPieceModel>(Vocabulary(tokens, vocab_file), WordPieceOptions{}, vocab_file);
  const Vocabulary& vocabulary = components.model->vocabulary();
  const auto id_of = [&](const char* token) {
    const std::int32_t id = vocabulary.id_of(token);
    if (id < 0)
      throw DataError(fmt::format("{} must have the line {}; got none; give the vocab.txt of a BERT model",
                                  vocab_file, token));
    components.added.push_back(special_token(token, id));
    return id;
  };
  const std::int32_t unk = id_of("[UNK]"), sep = id_of("[SEP]"), pad = id_of("[PAD]"), cls = id_of("[CLS]");
  (void)id_of("[MASK]");
  auto next = static_cast<std::int32_t>(vocabulary.end());
  for (int i = 0; !lower_case && i < 100; ++i)
    components.added.push_back(special_token(fmt::format("<extra_id_{}>", i), next++));
  components.normalizers.emplace_back(BertNormalizer{.strip_accents = lower_case, .lowercase = lower_case});
  components.pre_tokenizers.emplace_back(SplitPreTokenizer{CharFlagPattern{0}, SplitBehavior::kRemoved});
  components.pre_tokenizers.emplace_back(SplitPreTokenizer{CharFlagPattern{kBertPunctuation}});
  components.decoders.emplace_back(WordPieceDecoder{});
  using Kind = PostProcessor::Piece::Kind;
  const PostProcessor::Piece begin{Kind::kSpecialToken, {cls}, 0}, first{Kind::kSequenceA, {}, 0},
      end{Kind::kSpecialToken, {sep}, 0}, second{Kind::kSequenceB, {}, 1},
      second_end{Kind::kSpecialToken, {sep}, 1};
  components.post_processor = PostProcessor({begin, first, end}, {begin, first, end, second, second_end});
  auto tokenizer = std::make_unique<HfTokenizer>(std::move(components));
  tokenizer->set_special({cls, sep, unk, pad});
  return tokenizer;
}

namespace {

/// Tokens by rank and special tokens, each with its first id.
struct Ranks {
  std::vector<std::string> bytes;
  std::int64_t first_id = 0;
  std::vector<std::string> special;
  std::int64_t first_special = 0;
};

[[noreturn]] void reject_rank(const std::string& path, std::size_t number, std::string_view got) {
  throw DataError(
      fmt::format("{} token {} must be base64 and the rank, in order from 0; got '{}'; fix the file", path,
                  number, got.substr(0, 60)));
}

Ranks megatron_ranks(const std::string& path, const std::string& text, const TiktokenOptions& options) {
  constexpr std::int64_t kDefaultSize = 131072;
  const std::int64_t size = options.vocab_size > 0 ? options.vocab_size : kDefaultSize;
  Ranks ranks;
  ranks.special = {"<unk>", "<s>", "</s>", "<mask>", "<pad>", "<cls>", "<sep>"};
  const auto named = static_cast<std::int64_t>(ranks.special.size());
  if (options.num_special < named || options.num_special >= size)
    throw ConfigError(
        fmt::format("--tiktoken-num-special-tokens must be {} to {}, below --vocab-size; got {}; change it",
                    named, size - 1, options.num_special));
  for (std::int64_t i = named; i < options.num_special; ++i)
    ranks.special.push_back(fmt::format("<SPECIAL_{}>", i));
  ranks.first_id = options.num_special;
  with_json(path, text, [&](const JsonView& json) {
    for (const JsonView& item : json.items()) {
      if (static_cast<std::int64_t>(ranks.bytes.size()) + options.num_special == size) break;
      item.allow_only({"rank", "token_bytes", "token_str"});
      const auto rank = static_cast<std::int64_t>(ranks.bytes.size());
      (void)item.at("rank").integer(rank, rank);
      const auto bytes = read_base64(item.text("token_bytes"));
      if (!bytes) reject_rank(path, ranks.bytes.size(), item.text("token_bytes"));
      ranks.bytes.push_back(*bytes);
    }
  });
  if (static_cast<std::int64_t>(ranks.bytes.size()) + options.num_special != size)
    throw DataError(fmt::format(
        "{} must have at least --vocab-size - --tiktoken-num-special-tokens tokens ({} - {}); got {}; "
        "lower --vocab-size",
        path, size, options.num_special, ranks.bytes.size()));
  return ranks;
}

Ranks plain_ranks(const std::string& path, const std::string& text) {
  Ranks ranks;
  for_each_line(text, [&](std::string_view line, std::size_t number) {
    const std::size_t space = line.find(' ');
    const auto bytes = space == std::string_view::npos ? std::nullopt : read_base64(line.substr(0, space));
    std::size_t rank = 0;
    if (!bytes || bytes->empty() ||
        std::from_chars(line.data() + space + 1, line.data() + line.size(), rank).ec != std::errc() ||
        rank != ranks.bytes.size())
      reject_rank(path, number - 1, line);
    ranks.bytes.push_back(*bytes);
  });
  ranks.first_special = static_cast<std::int64_t>(ranks.bytes.size());
  return ranks;
}

/// A published encoding: its split pattern, and its special tokens by their offset after the ranks.
struct TiktokenEncoding {
  SplitPattern pattern;
  std::size_t tokens;  ///< number of ranks in the published file
  std::vector<std::pair<int, std::string>> special;
  std::string bos, eos;
};

TiktokenEncoding llama3_encoding() {
  TiktokenEncoding encoding{SplitPattern::kLlama3, 128'000, {}, "<|begin_of_text|>", "<|end_of_text|>"};
  const std::map<int, std::string> named = {{0, "<|begin_of_text|>"},
                                            {1, "<|end_of_text|>"},
                                            {6, "<|start_header_id|>"},
                                            {7, "<|end_header_id|>"},
                                            {9, "<|eot_id|>"}};
  for (int i = 0, reserved = 0; i < 256; ++i)
    encoding.special.emplace_back(
        i, named.contains(i) ? named.at(i) : fmt::format("<|reserved_special_token_{}|>", reserved++));
  return encoding;
}

TiktokenEncoding encoding_named(const std::string& pattern) {
  const std::string end = "<|endoftext|>";
  if (pattern == "gpt2") return {SplitPattern::kGpt2, 50'256, {{0, end}}, end, end};
  if (pattern == "cl100k_base")
    return {SplitPattern::kCl100k,
            100'256,
            {{1, end},
             {2, "<|fim_prefix|>"},
             {3, "<|fim_middle|>"},
             {4, "<|fim_suffix|>"},
             {20, "<|endofprompt|>"}},
            end,
            end};
  if (pattern == "o200k_base")
    return {SplitPattern::kO200k, 199'998, {{1, end}, {20, "<|endofprompt|>"}}, end, end};
  if (pattern == "llama3") return llama3_encoding();
  throw ConfigError(
      fmt::format("--tiktoken-pattern must be gpt2, cl100k_base, o200k_base or llama3 for a file of base64 "
                  "lines; got '{}'; name the encoding of the file",
                  pattern));
}

/// The merges of all pairs of tokens whose concatenation is a token, at the rank of that token.
Merges merges_of_ranks(const Vocabulary& raw, const std::string& where) {
  std::vector<Merges::Merge> merges;
  for (std::int32_t id = 0; id < raw.end(); ++id) {
    const auto text = raw.text_of(id);
    for (std::size_t split = 1; text && split < text->size(); ++split) {
      const std::int32_t left = raw.id_of(text->substr(0, split));
      const std::int32_t right = left < 0 ? -1 : raw.id_of(text->substr(split));
      if (right >= 0) merges.push_back({left, right, id, static_cast<std::uint32_t>(id)});
    }
  }
  return {merges, where};
}

TokenizerComponents tiktoken_components(const Ranks& ranks, SplitPattern pattern, const std::string& path) {
  constexpr std::size_t kMaxTokenBytes = 1024;
  Tokens raw, shown;
  std::vector<std::string> chars;
  chars.reserve(ranks.bytes.size());
  for (std::size_t i = 0; i < ranks.bytes.size(); ++i) {
    if (ranks.bytes[i].empty() || ranks.bytes[i].size() > kMaxTokenBytes) reject_rank(path, i, "");
    const std::int64_t id = ranks.first_id + static_cast<std::int64_t>(i);
    raw.emplace_back(ranks.bytes[i], id);
    shown.emplace_back(chars.emplace_back(bytes_as_chars(ranks.bytes[i])), id);
  }
  const Vocabulary raw_vocabulary(raw, path);
  for (int byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    if (raw_vocabulary.id_of({&character, 1}) < 0)
      throw DataError(fmt::format("{}: every byte must be a token; got none for {:#04x}; copy the file again",
                                  path, byte));
  }
  TokenizerComponents components =
      byte_level_components(Vocabulary(shown, path), merges_of_ranks(raw_vocabulary, path), true, path);
  components.pre_tokenizers.emplace_back(SplitPreTokenizer{.pattern = pattern});
  components.pre_tokenizers.emplace_back(
      ByteLevelPreTokenizer{.add_prefix_space = false, .use_regex = false});
  return components;
}

std::unique_ptr<HfTokenizer> megatron_tiktoken(const std::string& path, const std::string& text,
                                               const TiktokenOptions& options) {
  const std::map<std::string, SplitPattern> patterns = {
      {"", SplitPattern::kTekken}, {"v1", SplitPattern::kTiktokenV1}, {"v2", SplitPattern::kTekken}};
  if (!patterns.contains(options.pattern))
    throw ConfigError(fmt::format(
        "--tiktoken-pattern must be v1 or v2 for a .json file; got '{}'; choose one", options.pattern));
  const Ranks ranks = megatron_ranks(path, text, options);
  TokenizerComponents components = tiktoken_components(ranks, patterns.at(options.pattern), path);
  for (std::size_t i = 0; i < ranks.special.size(); ++i)
    components.added.push_back(special_token(ranks.special[i], static_cast<std::int32_t>(i)));
  auto tokenizer = std::make_unique<HfTokenizer>(std::move(components));
  tokenizer->set_special({1, 2, 0, 4});
  tokenizer->set_post_processor(PostProcessor());
  return tokenizer;
}

}  // namespace

std::unique_ptr<HfTokenizer> load_tiktoken(const std::string& path, const TiktokenOptions& options) {
  if (path.empty())
    throw ConfigError(
        "--tokenizer-model must name a file of ranks for TikTokenizer; got none; give its path");
  const std::string text = read_regular(path, "--tokenizer-model");
  if (path.ends_with(".json")) return megatron_tiktoken(path, text, options);
  const TiktokenEncoding encoding = encoding_named(options.pattern);
  const Ranks ranks = plain_ranks(path, text);
  if (ranks.bytes.size() != encoding.tokens)
    log::warning(
        "{} has {} tokens, the published file of {} has {}; special tokens follow the last one; copy the file again "
        "unless this is intended",
        path, ranks.bytes.size(), options.pattern, encoding.tokens);
  TokenizerComponents components = tiktoken_components(ranks, encoding.pattern, path);
  for (const auto& [offset, name] : encoding.special)
    components.added.push_back(special_token(name, static_cast<std::int32_t>(ranks.first_special) + offset));
  auto tokenizer = std::make_unique<HfTokenizer>(std::move(components));
  tokenizer->set_special({tokenizer->id_of(encoding.bos), tokenizer->id_of(encoding.eos), -1, -1});
  return tokenizer;
}

}  // namespace colonnade::tokenizers
