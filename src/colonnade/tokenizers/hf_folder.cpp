// See hf_folder.h.
#include "colonnade/tokenizers/hf_folder.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <initializer_list>
#include <map>

#include "colonnade/base/files.h"
#include "colonnade/tokenizers/tokenizer_json.h"

namespace colonnade::tokenizers {
namespace {

namespace fs = std::filesystem;

constexpr std::array kRoles = {"bos_token", "eos_token", "unk_token", "sep_token",
                               "pad_token", "cls_token", "mask_token"};

bool is_role(std::string_view key) { return std::ranges::find(kRoles, key) != kRoles.end(); }

/// The id of a token; -1: there is none.
std::int32_t id_of(const TokenizerParts& parts, std::string_view content) {
  for (const AddedToken& token : parts.added)
    if (token.content == content) return token.id;
  return parts.model->vocabulary().id_of(content);
}

/// "</s>" or {"content": "</s>", "lstrip": false, ...}
AddedToken token_of(const JsonView& json, bool special) {
  AddedToken token;
  token.content = json.is_text() ? json.text() : json.text("content");
  if (token.content.empty()) json.refuse("must have a text", "none");
  token.special = special;
  if (json.is_text()) return token;
  token.special = json.boolean("special", special);
  token.normalized = json.boolean("normalized", !token.special);
  token.single_word = json.boolean("single_word", false);
  token.left_strip = json.boolean("lstrip", false);
  token.right_strip = json.boolean("rstrip", false);
  return token;
}

/// What the files of a folder say beside tokenizer.json, put into its parts.
class Folder {
 public:
  explicit Folder(TokenizerParts& parts) : parts_(parts), end_(parts.model->vocabulary().end()) {
    for (const AddedToken& token : parts_.added) end_ = std::max(end_, std::int64_t{token.id} + 1);
  }

  /// The roles that special_tokens_map.json gives to tokens: what tokenizer_config.json says of them does not
  /// count, unless that lists added tokens. Then nobody reads the map.
  void prefer(const JsonView& map) {
    for (const char* role : kRoles)
      if (const auto token = map.find(role)) preferred_.emplace(role, token_of(*token, true));
  }

  /// `is_map`: it is special_tokens_map.json, read behind tokenizer_config.json.
  void read(const JsonView& json, bool is_map) {
    if (json.boolean("split_special_tokens", false))
      json.at("split_special_tokens").refuse("must be false, because special tokens are found in texts");
    if (json.find("added_tokens_decoder")) lists_added_ = true;
    if (lists_added_) preferred_.clear();
    add_listed(json);
    add_named(json, is_map);
    std::string name = json.text("tokenizer_class", "");
    if (name.ends_with("Fast")) name.resize(name.size() - 4);
    if (name.empty() || name == "PreTrainedTokenizer" || name == "TokenizersBackend") return;
    clean_as_bert(json);
    begin_with_space(json, name);
    if (takes_ends(name)) put_ends(json);
  }

  /// What tokenizer_config.json alone says about texts of ids. BPE leaves them as they are unless it is told
  /// twice.
  void read_cleaning(const JsonView& json) {
    const bool of_bpe = dynamic_cast<const BpeModel*>(parts_.model.get()) != nullptr;
    constexpr const char* kForced = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output";
    const bool forced = json.boolean(kForced, false);
    parts_.cleans_texts = json.boolean("clean_up_tokenization_spaces", false) && (forced || !of_bpe);
  }

  /// Whether tokenizer_config.json lists added tokens.
  [[nodiscard]] bool lists_added() const { return lists_added_; }

  /// The special tokens that were named, or nothing.
  [[nodiscard]] std::optional<SpecialIds> special() const {
    if (names_.empty()) return std::nullopt;
    const std::int32_t bos = named("bos_token"), eos = named("eos_token");
    return SpecialIds{bos >= 0 ? bos : named("cls_token"), eos >= 0 ? eos : named("sep_token"),
                      named("unk_token"), named("pad_token")};
  }

 private:
  [[nodiscard]] std::int32_t named(const char* role) const {
    const auto name = names_.find(role);
    return name == names_.end() ? -1 : id_of(parts_, name->second);
  }

  /// Is found in texts from now on. A new text gets the next id.
  void add(AddedToken token) {
    for (const AddedToken& known : parts_.added)
      if (known.content == token.content) return;
    token.id = parts_.model->vocabulary().id_of(token.content);
    if (token.id < 0) token.id = static_cast<std::int32_t>(end_++);
    parts_.added.push_back(std::move(token));
  }

  /// added_tokens_decoder: {"7": {"content": ...}, ...}, by id.
  void add_listed(const JsonView& json) {
    const auto listed = json.find("added_tokens_decoder");
    if (!listed) return;
    std::map<std::int64_t, JsonView> by_id;
    for (const auto& [key, value] : listed->object()) {
      const JsonView token = listed->member(value, key);
      std::int64_t id = -1;
      const auto [end, status] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (status != std::errc() || end != key.data() + key.size())
        token.refuse("must have an id for its key");
      by_id.emplace(id, token);
    }
    for (const auto& [id, json_token] : by_id) {
      const AddedToken token = token_of(json_token, false);
      const std::int32_t own = id_of(parts_, token.content);
      if (own < 0 ? id != end_ : id != own)
        json_token.refuse(
            fmt::format("must be token {} of tokenizer.json, or the first behind its tokens", id),
            own < 0 ? fmt::format("none, {} tokens", end_) : std::to_string(own), "mend one of the files");
      add(token);
    }
  }

  /// "eos_token": "</s>" and the like, and lists of further ones.
  void add_named(const JsonView& json, bool is_map) {
    for (const char* role : kRoles) {
      const auto token = json.find(role);
      if (!token) continue;
      const auto preferred = preferred_.find(role);
      const AddedToken named = preferred == preferred_.end() ? token_of(*token, true) : preferred->second;
      names_[role] = named.content;
      add(named);
    }
    for (const auto& [name, json_token] : model_tokens(json, is_map)) {
      const AddedToken token = token_of(json_token, true);
      if (is_map && id_of(parts_, token.content) < 0)
        json_token.refuse("must be a token of tokenizer.json", fmt::format("'{}'", token.content),
                          "name it in tokenizer_config.json");
      add(token);
    }
    const std::array lists = {json.find("extra_special_tokens"), json.find("additional_special_tokens")};
    for (const auto& list : lists)
      if (list && list->is_array())
        for (const JsonView& token : list->items()) add(token_of(token, true));
  }

  void clean_as_bert(const JsonView& json) {
    for (Normalizer& part : parts_.normalizers) {
      auto* bert = std::get_if<BertCleaning>(&part);
      if (bert == nullptr) continue;
      if (json.find("do_lower_case")) bert->strip_accents = bert->lower = json.boolean("do_lower_case");
      bert->strip_accents = json.boolean("strip_accents", bert->strip_accents);
      bert->split_chinese = json.boolean("tokenize_chinese_chars", bert->split_chinese);
    }
  }

  /// Classes whose only step is that of bytes take the key; others make all steps anew, and must agree.
  void begin_with_space(const JsonView& json, const std::string& name) {
    const auto space = json.find("add_prefix_space");
    if (!space) return;
    std::vector<PreTokenizer>& steps = parts_.pre_tokenizers;
    if (steps.size() == 1 && std::holds_alternative<ByteLevelStep>(steps[0])) {
      std::get<ByteLevelStep>(steps[0]).add_prefix_space = space->boolean();
      return;
    }
    if (!takes_ends(name)) return;
    bool does = false;
    for (const Normalizer& part : parts_.normalizers) does = does || std::holds_alternative<Prepend>(part);
    for (const PreTokenizer& part : steps) {
      const auto* mark = std::get_if<MetaspaceStep>(&part);
      does = does || (mark != nullptr && mark->prepend != MetaspaceStep::Prepend::kNever);
    }
    if (does != space->boolean())
      space->refuse(fmt::format("must be what tokenizer.json does, because {} would make it anew", name),
                    space->boolean() ? "true" : "false",
                    "change one of the files, or make tokenizer_class PreTrainedTokenizerFast");
  }

  /// Classes for which add_bos_token and add_eos_token say more than the post-processor.
  static bool takes_ends(const std::string& name) {
    constexpr std::array kNames = {"LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer",
                                   "CohereTokenizer"};
    return std::ranges::find(kNames, name) != kNames.end();
  }

  /// bos text eos, bos text eos bos text eos
  void put_ends(const JsonView& json) {
    if (!json.find("add_bos_token") && !json.find("add_eos_token")) return;
    const auto end_of = [&](const char* key, const char* role) {
      if (!json.boolean(key, false)) return std::int32_t{-1};
      if (!names_.contains(role)) json.at(key).refuse(fmt::format("must have a {} to add", role), "none");
      return named(role);
    };
    const std::int32_t bos = end_of("add_bos_token", "bos_token"), eos = end_of("add_eos_token", "eos_token");
    using Part = PostProcessor::Part;
    std::vector<Part> single, pair;
    for (const std::int32_t type : {0, 1}) {
      if (bos >= 0) pair.push_back({Part::Kind::kSpecial, {bos}, type});
      pair.push_back({type == 0 ? Part::Kind::kFirst : Part::Kind::kSecond, {}, type});
      if (eos >= 0) pair.push_back({Part::Kind::kSpecial, {eos}, type});
      if (type == 0) single = pair;
    }
    parts_.post_processor = {std::move(single), std::move(pair)};
  }

  TokenizerParts& parts_;
  bool lists_added_ = false;  ///< there is added_tokens_decoder
  std::int64_t end_;          ///< the first id that nothing has
  std::map<std::string, AddedToken> preferred_;
  std::map<std::string, std::string> names_;
};

/// Throws DataError for a folder without tokenizer.json, with what it holds in its place.
void require_json_in(const fs::path& folder) {
  if (fs::is_regular_file(folder / "tokenizer.json")) return;
  std::string others;
  for (const char* name : {"tokenizer.model", "vocab.json", "vocab.txt", "spiece.model"})
    if (fs::is_regular_file(folder / name))
      others += fmt::format("{}{}", others.empty() ? "" : " and ", name);
  throw DataError(fmt::format(
      "{}: HuggingFaceTokenizer reads a tokenizer.json; got a folder with {}; {}", folder.string(),
      others.empty() ? "no file of a tokenizer" : others + " instead",
      others.empty() ? "check --tokenizer-model"
                     : "write one with AutoTokenizer.from_pretrained(F).save_pretrained(F), or choose the "
                       "--tokenizer-type of these files"));
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

std::vector<std::pair<std::string, JsonView>> model_tokens(const JsonView& json, bool is_map) {
  std::vector<std::pair<std::string, JsonView>> tokens, strings;
  for (const auto& [key, value] : json.object()) {
    if (!key.ends_with("_token") || is_role(key)) continue;
    const JsonView token = json.member(value, key);
    const bool is_text = token.is_text() && !token.text().empty();
    if (is_text && !is_map) strings.emplace_back(key, token);
    if (value.is_object() ? is_map || token.text("__type", "") == "AddedToken" : is_text && is_map)
      tokens.emplace_back(key, token);
  }
  auto table = json.find("extra_special_tokens");
  if (!table) table = json.find("additional_special_tokens");
  if ((!table || table->is_array()) && strings.empty()) table = json.find("model_specific_special_tokens");
  if (table && !table->is_array())
    for (const auto& [name, value] : table->object()) strings.emplace_back(name, table->member(value, name));
  for (const auto& named : strings)
    std::erase_if(tokens, [&](const auto& token) { return token.first == named.first; });
  tokens.insert(tokens.end(), strings.begin(), strings.end());
  return tokens;
}

std::string main_file_of(const std::string& model) {
  if (!fs::is_directory(model)) return model;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"})
    if (const fs::path path = fs::path(model) / name; fs::is_regular_file(path)) return path.string();
  throw DataError(fmt::format(
      "{} must hold tokenizer.json, tokenizer.model, vocab.json or vocab.txt; got none; check --tokenizer-model",
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
  const fs::path path(model);
  require_json_in(path);
  TokenizerParts parts = read_tokenizer_parts((path / "tokenizer.json").string());
  Folder folder(parts);
  const auto with = [&path](const char* name, const auto& use) {
    if (const std::string file = (path / name).string(); fs::is_regular_file(file))
      with_json(file, read_file(file), use);
  };
  with("special_tokens_map.json", [&](const JsonView& map) { folder.prefer(map); });
  with("tokenizer_config.json", [&](const JsonView& json) {
    folder.read(json, false);
    folder.read_cleaning(json);
  });
  if (!folder.lists_added())
    with("special_tokens_map.json", [&](const JsonView& map) { folder.read(map, true); });
  const auto special = folder.special();
  auto tokenizer = std::make_unique<PartsTokenizer>(std::move(parts));
  if (special)
    tokenizer->set_special(*special);
  else
    guess_special(*tokenizer);
  tokenizer->set_special_in_documents(special_in_documents);
  return tokenizer;
}

}  // namespace colonnade::tokenizers
