// See folder_type.h.
#include "colonnade/tokenizers/folder_type.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/tokenizers/json_view.h"
#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::tokenizers {
namespace {

namespace fs = std::filesystem;

constexpr std::array kTokenizerFiles = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "tokenizer.model",
                                        "spiece.model",
                                        "vocab.json",
                                        "merges.txt",
                                        "vocab.txt",
                                        "chat_template.jinja",
                                        "chat_template.json"};

/// Files that a type reads if there is no tokenizer.json, and the Transformers classes whose ids it gives.
struct LegacyFiles {
  const char* type;
  std::vector<const char*> files;
  std::vector<std::string_view> classes;
  std::vector<std::string_view> model_types;  ///< of config.json, if no class is named
};

const std::vector<LegacyFiles>& legacy_files() {
  static const std::vector<LegacyFiles> kRows = {
      {"SentencePieceTokenizer",
       {"tokenizer.model"},
       {"LlamaTokenizer", "GemmaTokenizer", "CodeLlamaTokenizer", "SentencePieceBackend"},
       {"llama", "mistral", "mixtral", "gemma2"}},
      {"GPT2BPETokenizer", {"vocab.json", "merges.txt"}, {"GPT2Tokenizer"}, {"gpt2"}},
      {"BertWordPieceLowerCase", {"vocab.txt"}, {"BertTokenizer"}, {"bert"}},
      {"", {"spiece.model"}, {}, {}},
  };
  return kRows;
}

/// The settings of tokenizer_config.json and added_tokens.json.
struct TokenizerConfig {
  std::string class_name;  ///< tokenizer_class without "Fast"
  bool lower_case = true;
  bool add_prefix_space = false;
  std::vector<std::string> added;
};

void read_added_tokens(const JsonView& json, TokenizerConfig& config) {
  const auto listed = json.find("added_tokens_decoder");
  if (!listed) return;
  for (const auto& [id, token] : listed->object())
    config.added.push_back(listed->member(token, id).text("content"));
}

TokenizerConfig read_config(const fs::path& folder) {
  TokenizerConfig config;
  const auto with = [&folder](const char* name, const auto& use) {
    if (const fs::path file = folder / name; fs::is_regular_file(file))
      with_json(file.string(), read_file(file), use);
  };
  with("tokenizer_config.json", [&](const JsonView& json) {
    config.class_name = json.text("tokenizer_class", "");
    if (config.class_name.ends_with("Fast")) config.class_name.resize(config.class_name.size() - 4);
    config.lower_case = json.boolean("do_lower_case", true);
    config.add_prefix_space = json.boolean("add_prefix_space", false);
    read_added_tokens(json, config);
  });
  with("added_tokens.json", [&](const JsonView& json) {
    for (const auto& [token, id] : json.object()) config.added.emplace_back(token);
  });
  return config;
}

/// Why `row` does not give the ids of Transformers; empty if it does.
std::string mismatch(const LegacyFiles& row, const TokenizerConfig& config, const fs::path& folder,
                     const std::string& model_type) {
  const bool supported = config.class_name.empty() ? std::ranges::count(row.model_types, model_type) > 0
                                                   : std::ranges::count(row.classes, config.class_name) > 0;
  if (!supported)
    return fmt::format("no --tokenizer-type reads {} as {} does", fmt::join(row.files, " and "),
                       config.class_name.empty() ? "the tokenizer of " + model_type : config.class_name);
  const std::string_view type = row.type;
  if (type == "BertWordPieceLowerCase" && !config.lower_case)
    return "do_lower_case is false in tokenizer_config.json, and BertWordPieceCase adds Megatron's tokens";
  if (type == "GPT2BPETokenizer" && config.add_prefix_space)
    return "add_prefix_space is true in tokenizer_config.json";
  const auto tokenizer = make_tokenizer({.type = row.type, .model = folder.string()});
  for (const std::string& token : config.added)
    if (tokenizer->id_of(token) < 0)
      return fmt::format("it adds tokens such as '{}', which {} cannot hold", token,
                         fmt::join(row.files, " and "));
  return "";
}

}  // namespace

std::span<const char* const> tokenizer_files() { return kTokenizerFiles; }

FolderType detect_tokenizer(const fs::path& folder, const std::string& model_type) {
  const auto holds = [&folder](const char* name) {
    std::error_code closed;
    return fs::is_regular_file(folder / name, closed);
  };
  if (holds("tokenizer.json")) return {"HuggingFaceTokenizer", ""};
  for (const LegacyFiles& row : legacy_files()) {
    if (!std::ranges::all_of(row.files, holds)) continue;
    try {
      const std::string why = mismatch(row, read_config(folder), folder, model_type);
      if (why.empty()) return {row.type, ""};
      return {"", why};
    } catch (const Error& error) {
      return {"", error.what()};
    }
  }
  return {};
}

}  // namespace colonnade::tokenizers
