// See unique_description.h.
#include "colonnade/data/unique_description.h"

#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "colonnade/base/error.h"

namespace colonnade::data {
namespace {

/// `json` indented by four more spaces, as Python nests values.
std::string indented(std::string_view json) {
  std::string text;
  for (const char c : json) {
    text.push_back(c);
    if (c == '\n') text += "    ";
  }
  return text;
}

std::string bracketed(char open, std::span<const std::string> entries, char close) {
  std::string text(1, open);
  for (std::size_t i = 0; i < entries.size(); ++i)
    text += (i == 0 ? "\n    " : ",\n    ") + indented(entries[i]);
  if (!entries.empty()) text.push_back('\n');
  text.push_back(close);
  return text;
}

/// The split bounds as a matrix; its first bound is an integer in Python.
std::string json_of_split(const SplitFractions& fractions) {
  std::vector<std::string> rows;
  for (const auto& part : fractions) {
    if (!part) {
      rows.emplace_back("null");
      continue;
    }
    const std::array<std::string, 2> bounds{
        &part == fractions.data() ? std::string("0") : json_of(part->begin), json_of(part->end)};
    rows.push_back(json_list(bounds));
  }
  return json_list(rows);
}

/// Python's str() of an optional argument: "None" if unset.
std::string or_none(const std::string& text) { return json_of(text.empty() ? "None" : text); }

/// Arguments of Hugging Face's tokenizers, in Megatron's order, which depends on the type.
void add_hugging_face(JsonDict& dict, const config::Data& data, std::string_view special) {
  const bool special_last = data.tokenizer_type == "HuggingFaceTokenizer";
  if (!special_last) dict.add("additional_special_tokens", json_of(special));
  dict.add("vocab_file", or_none(data.vocab_file)).add("merges_file", or_none(data.merge_file));
  if (special_last) dict.add("additional_special_tokens", json_of(special));
  dict.add("use_fast", json_of("False"))
      .add("trust_remote_code", json_of("False"))
      .add("include_special_tokens", json_of(data.tokenizer_hf_include_special_tokens ? "True" : "False"));
}

/// Python's str(['<extra_id_0>', ..., '<extra_id_99>']).
std::string extra_ids() {
  std::string text = "[";
  for (int i = 0; i < 100; ++i) text += fmt::format("{}'<extra_id_{}>'", i == 0 ? "" : ", ", i);
  return text + "]";
}

void clear_path(nlohmann::ordered_json& path) {
  if (path.is_string()) path = "";
}

/// Clears the paths of one data set.
void clear_paths(nlohmann::ordered_json& dataset) {
  clear_path(dataset);
  if (!dataset.is_object()) return;
  if (dataset.contains("dataset_path")) clear_path(dataset["dataset_path"]);
  if (!dataset.contains("tokenizer") || !dataset["tokenizer"].is_object()) return;
  for (const char* key : {"tokenizer_path", "vocab_file", "merges_file"})
    if (dataset["tokenizer"].contains(key)) clear_path(dataset["tokenizer"][key]);
}

}  // namespace

JsonDict& JsonDict::add(std::string_view key, std::string_view json) {
  entries_.push_back(json_of(key) + ": " + std::string(json));
  return *this;
}

std::string JsonDict::text() const { return bracketed('{', entries_, '}'); }

std::string json_of(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

/// Shortest round-trip digits, as Python's repr: with an exponent below 0.0001 and from 1e16.
std::string json_of(double value) {
  std::array<char, 64> text{};
  const double size = std::abs(value);
  const bool exponent = size != 0 && (size < 1e-4 || size >= 1e16);
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 exponent ? std::chars_format::scientific : std::chars_format::fixed);
  std::string result(text.data(), end.ptr);
  if (!exponent && result.find('.') == std::string::npos) result += ".0";
  return result;
}

std::string json_of(std::int64_t value) { return fmt::format("{}", value); }
std::string json_of(bool value) { return value ? "true" : "false"; }
std::string json_list(std::span<const std::string> values) { return bracketed('[', values, ']'); }

std::string tokenizer_identity(const config::Data& data, std::int64_t vocab_size) {
  const std::string& type = data.tokenizer_type;
  if (type.empty()) return "null";
  JsonDict dict;
  dict.add("class", json_of("megatron.core.tokenizers.text.models.default_tokenizer.DefaultTokenizerText"));
  const auto path = [&dict](const std::string& json) { dict.add("tokenizer_path", json); };
  if (type == "NullTokenizer") {
    path("null");
    dict.add("vocab_size", json_of(fmt::format("{}", vocab_size)));
  } else if (type == "BertWordPieceLowerCase" || type == "BertWordPieceCase" || type == "GPT2BPETokenizer") {
    path(json_of(type));
    add_hugging_face(dict, data, type == "BertWordPieceCase" ? extra_ids() : "[]");
  } else if (type == "HuggingFaceTokenizer") {
    path(json_of(data.tokenizer_model));
    add_hugging_face(dict, data, "[]");
  } else if (type == "TikTokenizer") {
    path(json_of(data.tokenizer_model));
    if (!data.tiktoken_pattern.empty()) dict.add("pattern", json_of(data.tiktoken_pattern));
    if (vocab_size > 0) dict.add("vocab_size", json_of(fmt::format("{}", vocab_size)));
    dict.add("num_special_tokens", json_of(fmt::format("{}", data.tiktoken_num_special_tokens)))
        .add("special_tokens", json_of("None"));
  } else if (type.ends_with("SentencePieceTokenizer") || type == "Llama2Tokenizer") {
    path(json_of(data.tokenizer_model));
    dict.add("legacy", json_of("False")).add("special_tokens", json_of("None"));
  } else {
    path(json_of(data.tokenizer_model));
    dict.add("type", json_of(type));
  }
  return dict.text();
}

std::string describe_dataset(const DatasetClass& about, const std::string& prefix,
                             std::optional<std::int64_t> num_samples, Split split,
                             const std::optional<std::string>& split_words) {
  JsonDict dict;
  dict.add("class", json_of(about.name))
      .add("dataset_path", json_of(prefix))
      .add("num_samples", num_samples ? json_of(*num_samples) : "null")
      .add("index_split", json_of(kSplitNames[static_cast<std::size_t>(split)]))
      .add("random_seed", json_of(about.seed))
      .add("sequence_length", json_of(about.seq_length))
      .add("split", split_words ? json_of(*split_words) : "null")
      .add("split_matrix", split_words ? json_of_split(parse_split(*split_words)) : "null")
      .add("tokenizer", about.tokenizer);
  for (const auto& [key, json] : about.extra_keys) dict.add(key, json);
  return dict.text();
}

namespace {

/// `size` is JSON.
template <class Number>
std::string blend_dict(std::span<const std::string> datasets, Split split, std::span<const Number> weights,
                       const std::string& size) {
  std::vector<std::string> numbers;
  for (const Number weight : weights) numbers.push_back(json_of(weight));
  return JsonDict()
      .add("class", json_of("BlendedDataset"))
      .add("datasets", json_list(datasets))
      .add("split", json_of(kSplitNames[static_cast<std::size_t>(split)]))
      .add("weights", json_list(numbers))
      .add("size", size)
      .text();
}

}  // namespace

std::string describe_blend(std::span<const std::string> datasets, Split split,
                           std::span<const double> weights, std::int64_t size) {
  return blend_dict(datasets, split, weights, json_of(size));
}

std::string describe_blend(std::span<const std::string> datasets, Split split,
                           std::span<const std::int64_t> sizes) {
  return blend_dict(datasets, split, sizes, "null");
}

std::string without_paths(const std::string& description) {
  constexpr int kMaxDepth = 8;
  bool shallow = true;
  const auto check_depth = [&shallow](int depth, auto&&...) {
    return shallow = shallow && depth <= kMaxDepth;
  };
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(description, check_depth, false);
  if (!shallow || !json.is_object() || !json.contains("class")) return "";
  clear_paths(json);
  if (json.contains("datasets") && json["datasets"].is_array())
    for (auto& dataset : json["datasets"]) clear_paths(dataset);
  return json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace colonnade::data
