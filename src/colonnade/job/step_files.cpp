// See step_files.h.
#include "colonnade/job/step_files.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "colonnade/base/files.h"
#include "colonnade/chat_template/chat_template.h"
#include "colonnade/tokenizers/folder_type.h"

namespace colonnade::job {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kTemplate = "chat_template.jinja";
constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kGeneration = "generation_config.json";

/// A tokenizer file: the setting that names it, and its name in step folders and in a --tokenizer-model
/// folder. A name that ends with "." gets the file's extension, which decides its format.
struct NamedFile {
  const char* setting;
  const char* name;
};

/// Files of a tokenizer type. `transformers`: the Transformers class with the same ids; "" for none.
struct TokenizerFormat {
  std::string_view type;
  std::vector<NamedFile> files;
  const char* transformers;
};

const std::vector<TokenizerFormat>& formats() {
  static const std::vector<TokenizerFormat> kRows = {
      {"HuggingFaceTokenizer", {{"tokenizer_model", "tokenizer.json"}}, "PreTrainedTokenizerFast"},
      {"SFTTokenizer", {{"tokenizer_model", "tokenizer.json"}}, "PreTrainedTokenizerFast"},
      {"GPT2BPETokenizer", {{"vocab_file", "vocab.json"}, {"merge_file", "merges.txt"}}, "GPT2Tokenizer"},
      {"SentencePieceTokenizer", {{"tokenizer_model", "tokenizer.model"}}, "SentencePieceBackend"},
      {"GPTSentencePieceTokenizer", {{"tokenizer_model", "tokenizer.model"}}, "SentencePieceBackend"},
      {"Llama2Tokenizer", {{"tokenizer_model", "tokenizer.model"}}, "SentencePieceBackend"},
      {"BertWordPieceLowerCase", {{"vocab_file", "vocab.txt"}}, "BertTokenizer"},
      {"BertWordPieceCase", {{"vocab_file", "vocab.txt"}}, "BertTokenizer"},
      {"TikTokenizer", {{"tokenizer_model", "tiktoken."}}, ""},
  };
  return kRows;
}

const TokenizerFormat* format_of(const std::string& type) {
  const auto found = std::ranges::find(formats(), type, &TokenizerFormat::type);
  return found == formats().end() ? nullptr : &*found;
}

std::string value_of(const config::Data& data, std::string_view setting) {
  return setting == "vocab_file"   ? data.vocab_file
         : setting == "merge_file" ? data.merge_file
                                   : data.tokenizer_model;
}

/// Reads the tokenizer files in `folder` that are not in `files` yet.
void add_folder(std::map<std::string, std::string>& files, const fs::path& folder) {
  for (const char* name : tokenizers::tokenizer_files())
    if (!files.contains(name) && fs::is_regular_file(folder / name)) files[name] = read_file(folder / name);
}

std::string name_of(const NamedFile& file, const fs::path& path) {
  const std::string name = file.name;
  return name.ends_with('.') ? name + (path.extension() == ".json" ? "json" : "txt") : name;
}

/// Reads the files that define the ids, and the other tokenizer files of their folder. Returns the names of
/// the former.
std::vector<std::string> add_named(StepFiles& out, const config::Data& data, const TokenizerFormat& type) {
  std::vector<std::string> names;
  const fs::path model = data.tokenizer_model;
  for (const NamedFile& file : type.files) {
    const std::string given = value_of(data, file.setting);
    const fs::path path = given.empty() ? model : fs::path(given);
    const bool folder = fs::is_directory(path);
    const std::string name = folder ? file.name : name_of(file, path);
    out.copies[given.empty() ? "tokenizer_model" : file.setting] = folder ? "." : name;
    out.files[name] = read_file(folder ? path / name : path);
    names.push_back(name);
  }
  if (fs::is_directory(model)) add_folder(out.files, model);
  return names;
}

/// Adds the chat template of the messages, where it is not the one in the tokenizer's folder.
void add_template(StepFiles& out, const config::Data& data) {
  const std::string& format = data.sft_tokenizer_prompt_format;
  if (!data.sft || (data.chat_template.empty() && (format.empty() || format == "default"))) return;
  out.files[kTemplate] =
      chat_template::read_template({data.tokenizer_model, data.chat_template, format}).source();
  std::error_code no_name;  // an inline template may be too long for a path
  if (!data.chat_template.empty() && fs::is_regular_file(data.chat_template, no_name))
    out.copies["chat_template"] = kTemplate;
}

/// Whether `folder` holds files with the same contents under all `names`.
bool holds_equal_files(const fs::path& folder, const StepFiles& own, const std::vector<std::string>& names) {
  return std::ranges::all_of(names, [&](const std::string& name) {
    return fs::is_regular_file(folder / name) && read_file(folder / name) == own.files.at(name);
  });
}

void add_source(StepFiles& out, const checkpoint::CheckpointReader& source) {
  const fs::path& folder = source.folder();
  add_folder(out.files, folder);
  if (fs::is_regular_file(folder / kGeneration)) out.files[kGeneration] = read_file(folder / kGeneration);
  const json& config = source.hf_config();
  for (const char* id : {"bos_token_id", "eos_token_id"})
    if (config.is_object() && config.contains(id) && !config.at(id).is_null())
      out.config_ids[id] = config.at(id);
}

/// tokenizer_config.json for AutoTokenizer, with the tokenizer's special tokens. They are left out for the
/// tokenizer.json of a folder, which must be read back as before (load_hugging_face).
json config_for(const TokenizerFormat& type, const tokenizers::Tokenizer& tokenizer, bool with_special) {
  json config{{"tokenizer_class", type.transformers}};
  if (!with_special) return config;
  const tokenizers::SpecialIds special = tokenizer.special();
  const bool bert = type.type.starts_with("Bert");
  const std::pair<const char*, std::int32_t> roles[] = {{bert ? "cls_token" : "bos_token", special.bos},
                                                        {bert ? "sep_token" : "eos_token", special.eos},
                                                        {"unk_token", special.unk},
                                                        {"pad_token", special.pad}};
  for (const auto& [role, id] : roles)
    if (id >= 0) config[role] = tokenizer.piece_of(id);
  if (bert) config["do_lower_case"] = type.type == "BertWordPieceLowerCase";
  return config;
}

}  // namespace

StepFiles step_files(const config::Run& run, const tokenizers::Tokenizer* tokenizer,
                     const checkpoint::CheckpointReader* source) {
  StepFiles out;
  const TokenizerFormat* type = tokenizer == nullptr ? nullptr : format_of(run.data.tokenizer_type);
  std::vector<std::string> names;
  if (type != nullptr) {
    names = add_named(out, run.data, *type);
    add_template(out, run.data);
  }
  if (source != nullptr && holds_equal_files(source->folder(), out, names)) add_source(out, *source);
  if (type != nullptr && *type->transformers != '\0' && !out.files.contains(kConfig)) {
    const bool json_folder =
        out.files.contains("tokenizer.json") && out.copies.value("tokenizer_model", "") == ".";
    out.files[kConfig] = config_for(*type, *tokenizer, !json_folder).dump(2) + "\n";
  }
  if (type != nullptr && run.model_type == "gpt" && !out.files.contains(kGeneration) && tokenizer->eod() >= 0)
    out.files[kGeneration] =
        json{{"eos_token_id", out.config_ids.value("eos_token_id", json(tokenizer->eod()))}}.dump(2) + "\n";
  return out;
}

}  // namespace colonnade::job
