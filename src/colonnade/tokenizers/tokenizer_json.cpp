// See tokenizer_json.h: the model and the added tokens; json_components.cpp reads the other components.
#include "colonnade/tokenizers/tokenizer_json.h"

#include <cmath>
#include <filesystem>
#include <set>

#include "colonnade/base/files.h"
#include "colonnade/tokenizers/json_components.h"
#include "colonnade/tokenizers/json_scores.h"
#include "colonnade/tokenizers/json_view.h"

namespace colonnade::tokenizers {
namespace {

constexpr std::size_t kMaxAddedBytes = 4096;

/// The vocabulary of {"token": id, ...}.
Vocabulary vocabulary_of(const JsonView& json) {
  std::vector<std::pair<std::string_view, std::int64_t>> tokens;
  for (const auto& [token, value] : json.object()) {
    std::int64_t id = -1;
    if (value.get(id) != simdjson::SUCCESS || id < 0) json.member(value, token).reject("must be an id");
    tokens.emplace_back(token, id);
  }
  return {tokens, json.where()};
}

/// The merge of "a b" or ["a", "b"].
TextMerge merge_of(const JsonView& json, simdjson::dom::element item, std::size_t number) {
  const auto reject = [&] { json.member(item, fmt::format("[{}]", number)).reject("must be two tokens"); };
  if (item.is_string()) {
    const std::string_view text = item;
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) reject();
    return {std::string(text.substr(0, space)), std::string(text.substr(space + 1))};
  }
  simdjson::dom::array both;
  std::string_view left, right;
  if (item.get(both) != simdjson::SUCCESS || both.size() != 2 || both.at(0).get(left) != simdjson::SUCCESS ||
      both.at(1).get(right) != simdjson::SUCCESS)
    reject();
  return {std::string(left), std::string(right)};
}

std::unique_ptr<Model> bpe_of(const JsonView& json) {
  json.allow_only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                   "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (const auto dropout = json.find("dropout"); dropout && dropout->number() != 0)
    dropout->reject("must be null, because the same text must give the same ids");
  BpeOptions options;
  options.continuing_prefix = json.text("continuing_subword_prefix", "");
  options.end_suffix = json.text("end_of_word_suffix", "");
  if (const auto unknown = json.find("unk_token")) options.unknown = unknown->text();
  options.fuse_unknown = json.boolean("fuse_unk", false);
  options.byte_fallback = json.boolean("byte_fallback", false);
  options.ignore_merges = json.boolean("ignore_merges", false);
  Vocabulary vocabulary = vocabulary_of(json.at("vocab"));
  const JsonView merges_json = json.at("merges");
  std::vector<TextMerge> texts;
  for (const simdjson::dom::element item : merges_json.array())
    if (!item.is_string() || !std::string_view(item).starts_with("#version"))
      texts.push_back(merge_of(merges_json, item, texts.size()));
  Merges merges = merges_of_texts(texts, vocabulary, options.continuing_prefix, merges_json.where());
  return std::make_unique<BpeModel>(std::move(vocabulary), std::move(merges), options, json.where());
}

std::unique_ptr<Model> word_piece_of(const JsonView& json) {
  json.allow_only({"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  WordPieceOptions options;
  options.unknown = json.text("unk_token");
  options.continuing_prefix = json.text("continuing_subword_prefix");
  if (const auto most = json.find("max_input_chars_per_word")) options.max_chars = most->integer(0, 1 << 30);
  return std::make_unique<WordPieceModel>(vocabulary_of(json.at("vocab")), options, json.where());
}

std::unique_ptr<Model> word_level_of(const JsonView& json) {
  json.allow_only({"type", "unk_token", "vocab"});
  return std::make_unique<WordLevelModel>(vocabulary_of(json.at("vocab")), json.text("unk_token"));
}

/// `file`: text of the file whose model is `json`.
std::unique_ptr<Model> unigram_of(const JsonView& json, const std::string& file) {
  json.allow_only({"type", "unk_id", "vocab", "byte_fallback"});
  std::vector<std::pair<std::string_view, std::int64_t>> tokens;
  const JsonView vocab = json.at("vocab");
  const auto reject = [&](simdjson::dom::element item, std::size_t number) {
    vocab.member(item, fmt::format("[{}]", number)).reject("must be a token and its score");
  };
  for (const simdjson::dom::element item : vocab.array()) {
    simdjson::dom::array both;
    std::string_view text;
    if (item.get(both) != simdjson::SUCCESS || both.size() != 2 ||
        both.at(0).get(text) != simdjson::SUCCESS || !both.at(1).is_number())
      reject(item, tokens.size());
    tokens.emplace_back(text, static_cast<std::int64_t>(tokens.size()));
  }
  Vocabulary vocabulary(tokens, vocab.where(), Duplicates::kLastWins);
  std::vector<double> scores = unigram_scores(file, vocab.where());
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (i >= scores.size() || !std::isfinite(scores[i])) reject(vocab.array().at(i).value(), i);
  const auto unknown = json.find("unk_id");
  const auto unknown_id = unknown ? unknown->integer(0, static_cast<std::int64_t>(tokens.size()) - 1) : -1;
  return std::make_unique<UnigramModel>(std::move(vocabulary), std::move(scores),
                                        static_cast<std::int32_t>(unknown_id),
                                        json.boolean("byte_fallback", false));
}

std::unique_ptr<Model> model_of(const JsonView& json, const std::string& file) {
  const bool old_bpe = !json.find("type") && json.find("merges");  // files from before "type" was written
  const std::string type = old_bpe ? "BPE" : json.text("type");
  if (type == "BPE") return bpe_of(json);
  if (type == "WordPiece") return word_piece_of(json);
  if (type == "Unigram") return unigram_of(json, file);
  if (type == "WordLevel") return word_level_of(json);
  json.at("type").reject("must be one of BPE, WordPiece, Unigram, WordLevel", fmt::format("'{}'", type),
                         "use a tokenizer with another model");
}

/// The added tokens. Those not in the model's vocabulary get the ids after it, in order; the file must agree.
std::vector<AddedToken> added_of(const JsonView& json, const Vocabulary& vocabulary) {
  std::vector<AddedToken> added;
  std::set<std::string> contents;
  auto next = static_cast<std::int64_t>(vocabulary.size());
  for (const JsonView& item : json.items()) {
    item.allow_only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token;
    token.content = item.text("content");
    if (token.content.empty() || token.content.size() > kMaxAddedBytes)
      item.at("content").reject(fmt::format("must have 1 to {} bytes", kMaxAddedBytes),
                                std::to_string(token.content.size()));
    if (!contents.insert(token.content).second)
      item.at("content").reject("must be added once", fmt::format("'{}' twice", token.content.substr(0, 60)));
    token.id = vocabulary.id_of(token.content);
    const std::int64_t expected = token.id >= 0 ? token.id : next++;
    if (const std::int64_t id = item.at("id").integer(0, 1 << 30); id != expected)
      item.at("id").reject(fmt::format("must be {}, the id that the order of the tokens gives", expected),
                           std::to_string(id));
    token.id = static_cast<std::int32_t>(expected);
    token.special = item.boolean("special", false);
    token.normalized = item.boolean("normalized", !token.special);
    token.single_word = item.boolean("single_word", false);
    token.left_strip = item.boolean("lstrip", false);
    token.right_strip = item.boolean("rstrip", false);
    added.push_back(std::move(token));
  }
  return added;
}

TokenizerComponents components_of(const JsonView& json, const std::string& file) {
  json.allow_only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                   "post_processor", "decoder", "model"});
  if (json.text("version", "1.0") != "1.0") json.at("version").reject("must be 1.0");
  // Truncation and padding of batches. Transformers applies neither unless a call asks for it.
  if (const auto component = json.find("truncation"))
    component->allow_only({"direction", "max_length", "strategy", "stride"});
  if (const auto component = json.find("padding"))
    component->allow_only(
        {"strategy", "direction", "pad_to_multiple_of", "pad_id", "pad_type_id", "pad_token"});
  TokenizerComponents components;
  components.model = model_of(json.at("model"), file);
  std::int64_t size = components.model->vocabulary().end();
  if (const auto added = json.find("added_tokens"))
    components.added = added_of(*added, components.model->vocabulary());
  for (const AddedToken& token : components.added) size = std::max(size, std::int64_t{token.id} + 1);
  if (const auto component = json.find("normalizer")) read_normalizer(*component, components.normalizers);
  if (const auto component = json.find("pre_tokenizer"))
    read_pre_tokenizer(*component, components.pre_tokenizers);
  if (const auto component = json.find("decoder")) read_decoder(*component, components.decoders);
  if (const auto component = json.find("post_processor"))
    components.post_processor = read_post_processor(*component, size);
  return components;
}

}  // namespace

Merges merges_of_texts(const std::vector<TextMerge>& texts, const Vocabulary& vocabulary,
                       const std::string& continuing_prefix, const std::string& where) {
  std::vector<Merges::Merge> merges;
  merges.reserve(texts.size());
  const auto id_of = [&](std::string_view text) {
    const std::int32_t id = vocabulary.id_of(text);
    if (id < 0)
      throw DataError(fmt::format("{}[{}]: tokens must be in the vocabulary; got '{}'; fix the file", where,
                                  merges.size(), text.substr(0, 60)));
    return id;
  };
  std::string merged;
  for (const auto& [left, right] : texts) {
    const std::int32_t left_id = id_of(left), right_id = id_of(right);
    if (right.size() < continuing_prefix.size())
      throw DataError(fmt::format("{}[{}]: the second token must begin with '{}'; got '{}'; fix the file",
                                  where, merges.size(), continuing_prefix, right));
    merged.assign(left).append(right, continuing_prefix.size());
    merges.push_back({left_id, right_id, id_of(merged), static_cast<std::uint32_t>(merges.size())});
  }
  return {merges, where};
}

TokenizerComponents read_tokenizer_components(const std::string& path) {
  if (!std::filesystem::is_regular_file(path))
    throw DataError(
        fmt::format("{} must be a tokenizer.json, or a folder with one; got {}; check --tokenizer-model{}",
                    path, std::filesystem::exists(path) ? "a folder" : "no such file",
                    path.ends_with(".json") ? "" : ", which names local files: nothing is downloaded"));
  return parse_tokenizer_json(path, read_file(path));
}

TokenizerComponents parse_tokenizer_json(const std::string& path, const std::string& text) {
  return with_json(path, text, [&](const JsonView& json) { return components_of(json, text); });
}

std::unique_ptr<HfTokenizer> read_tokenizer_json(const std::string& path) {
  return std::make_unique<HfTokenizer>(read_tokenizer_components(path));
}

}  // namespace colonnade::tokenizers
