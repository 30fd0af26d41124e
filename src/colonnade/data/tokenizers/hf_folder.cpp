// See hf_folder.h.
#include "colonnade/data/tokenizers/hf_folder.h"

#include <charconv>
#include <filesystem>
#include <initializer_list>
#include <map>

#include "colonnade/base/files.h"
#include "colonnade/data/tokenizers/json_view.h"
#include "colonnade/data/tokenizers/tokenizer_json.h"

namespace colonnade::data {
namespace {

namespace fs = std::filesystem;

/// What the files beside tokenizer.json say.
struct Beside {
  std::map<std::string, std::string> names;  ///< "eos_token": "</s>"
  std::optional<bool> add_bos, add_eos;
};

constexpr std::initializer_list<const char*> kRoles = {"bos_token", "eos_token", "unk_token",
                                                       "sep_token", "pad_token", "cls_token"};

void read_names(const JsonView& json, Beside& beside) {
  for (const char* role : kRoles)
    if (const auto token = json.find(role); token && !beside.names.contains(role))
      beside.names[role] = token->is_text() ? token->text() : token->text("content");
}

/// Tokens that the configuration knows must be those of tokenizer.json: Transformers would add others on the
/// fly.
void check_added(const JsonView& json, const PartsTokenizer& tokenizer) {
  const auto added = json.find("added_tokens_decoder");
  if (!added) return;
  for (const auto& [key, value] : added->object()) {
    std::int64_t id = -1;
    std::from_chars(key.data(), key.data() + key.size(), id);
    const JsonView token = added->member(value, key);
    if (const std::int32_t own = tokenizer.id_of(token.text("content")); own != id)
      token.refuse(fmt::format("must be token {} of tokenizer.json", id),
                   own < 0 ? "none" : std::to_string(own), "add it there");
  }
}

Beside read_beside(const fs::path& folder, const PartsTokenizer& tokenizer) {
  Beside beside;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string path = (folder / name).string();
    if (!fs::is_regular_file(path)) continue;
    with_json(path, read_file(path), [&](const JsonView& json) {
      read_names(json, beside);
      check_added(json, tokenizer);
      if (const auto add = json.find("add_bos_token")) beside.add_bos = add->boolean();
      if (const auto add = json.find("add_eos_token")) beside.add_eos = add->boolean();
    });
  }
  return beside;
}

/// bos text eos, bos text eos bos text eos
PostProcessor between(std::int32_t bos, std::int32_t eos) {
  using Part = PostProcessor::Part;
  std::vector<Part> single, pair;
  for (const std::int32_t type : {0, 1}) {
    if (bos >= 0) pair.push_back({Part::Kind::kSpecial, {bos}, type});
    pair.push_back({type == 0 ? Part::Kind::kFirst : Part::Kind::kSecond, {}, type});
    if (eos >= 0) pair.push_back({Part::Kind::kSpecial, {eos}, type});
    if (type == 0) single = pair;
  }
  return {std::move(single), std::move(pair)};
}

/// Special tokens of a folder.
void name_special(PartsTokenizer& tokenizer, const Beside& beside, const fs::path& folder) {
  const auto id_of = [&](const char* role) {
    const auto name = beside.names.find(role);
    if (name == beside.names.end()) return std::int32_t{-1};
    const std::int32_t id = tokenizer.id_of(name->second);
    if (id < 0)
      throw DataError(fmt::format("{}: {} must be a token of tokenizer.json; got '{}'; add it there",
                                  folder.string(), role, name->second));
    return id;
  };
  const std::int32_t bos = id_of("bos_token"), eos = id_of("eos_token");
  if (beside.add_bos || beside.add_eos)
    tokenizer.set_post_processor(
        between(beside.add_bos.value_or(false) ? bos : -1, beside.add_eos.value_or(false) ? eos : -1));
  tokenizer.set_special({bos >= 0 ? bos : id_of("cls_token"), eos >= 0 ? eos : id_of("sep_token"),
                         id_of("unk_token"), id_of("pad_token")});
}

/// Special tokens of a lone file, by the names that families use.
void guess_special(PartsTokenizer& tokenizer) {
  const auto first_of = [&](std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (const std::int32_t id = tokenizer.id_of(name); id >= 0) return id;
    return std::int32_t{-1};
  };
  tokenizer.set_special(
      {first_of({"<|begin_of_text|>", "<|startoftext|>", "<｜begin▁of▁sentence｜>", "<s>", "<bos>", "[CLS]",
                 "<|endoftext|>"}),
       first_of({"<|end_of_text|>", "<|endoftext|>", "<｜end▁of▁sentence｜>", "</s>", "<eos>", "[SEP]"}),
       first_of({"<unk>", "[UNK]"}), first_of({"<pad>", "[PAD]", "<|finetune_right_pad_id|>"})});
}

}  // namespace

std::string main_file_of(const std::string& model) {
  if (!fs::is_directory(model)) return model;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"})
    if (const fs::path path = fs::path(model) / name; fs::is_regular_file(path)) return path.string();
  throw DataError(fmt::format(
      "{}: must hold tokenizer.json, tokenizer.model, vocab.json or vocab.txt; got none; check --tokenizer-model",
      model));
}

std::unique_ptr<PartsTokenizer> load_hugging_face(const std::string& model, bool special_in_documents) {
  if (model.empty())
    throw ConfigError(
        "--tokenizer-model: HuggingFaceTokenizer needs a tokenizer.json or a folder with one; got none; give its path");
  if (!fs::is_directory(model)) {
    auto tokenizer = read_tokenizer_json(model);
    guess_special(*tokenizer);
    return tokenizer;
  }
  const fs::path folder(model);
  auto tokenizer = read_tokenizer_json((folder / "tokenizer.json").string());
  const Beside beside = read_beside(folder, *tokenizer);
  if (beside.names.empty()) {
    guess_special(*tokenizer);
  } else {
    name_special(*tokenizer, beside, folder);
  }
  tokenizer->set_special_in_documents(special_in_documents);
  return tokenizer;
}

}  // namespace colonnade::data
