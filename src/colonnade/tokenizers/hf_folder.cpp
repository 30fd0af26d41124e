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

/// The id of a token; -1 if there is none.
std::int32_t id_of(const TokenizerComponents& parts, std::string_view content) {
  for (const AddedToken& token : parts.added)
    if (token.content == content) return token.id;
  return parts.model->vocabulary().id_of(content);
}

/// "</s>" or {"content": "</s>", "lstrip": false, ...}
AddedToken token_of(const JsonView& json, bool special) {
  AddedToken token;
  token.content = json.is_text() ? json.text() : json.text("content");
  if (token.content.empty()) json.reject("must have content", "none");
  token.special = special;
  if (json.is_text()) return token;
  token.special = json.boolean("special", special);
  token.normalized = json.boolean("normalized", !token.special);
  token.single_word = json.boolean("single_word", false);
  token.left_strip = json.boolean("lstrip", false);
  token.right_strip = json.boolean("rstrip", false);
  return token;
}

/// Applies the other files of a folder to the components of its tokenizer.json.
class Folder {
 public:
  explicit Folder(TokenizerComponents& parts) : parts_(parts), next_id_(parts.model->vocabulary().end()) {
    for (const AddedToken& token : parts_.added) next_id_ = std::max(next_id_, std::int64_t{token.id} + 1);
  }

  /// Reads the roles in special_tokens_map.json. They override those of tokenizer_config.json, unless that
  /// file lists added tokens.
  void read_token_map(const JsonView& map) {
    for (const char* role : kRoles)
      if (const auto token = map.find(role)) preferred_.emplace(role, token_of(*token, true));
  }

  /// `is_map`: whether it is special_tokens_map.json, read after tokenizer_config.json.
  void read_config(const JsonView& json, bool is_map) {
    if (json.boolean("split_special_tokens", false))
      json.at("split_special_tokens").reject("must be false, because special tokens are matched in texts");
    if (json.find("added_tokens_decoder")) lists_added_ = true;
    if (lists_added_) preferred_.clear();
    add_listed(json);
    add_named(json, is_map);
    std::string name = json.text("tokenizer_class", "");
    if (name.ends_with("Fast")) name.resize(name.size() - 4);
    if (name.empty() || name == "PreTrainedTokenizer" || name == "TokenizersBackend") return;
    set_bert_normalizer(json);
    set_prefix_space(json, name);
    if (has_bos_eos_keys(name)) set_bos_eos(json);
  }

  /// Reads clean_up_tokenization_spaces, a key of tokenizer_config.json only. BPE models need a second key
  /// for it.
  void read_clean_up(const JsonView& json) {
    const bool is_bpe = dynamic_cast<const BpeModel*>(parts_.model.get()) != nullptr;
    constexpr const char* kForced = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output";
    const bool forced = json.boolean(kForced, false);
    parts_.clean_up_spaces = json.boolean("clean_up_tokenization_spaces", false) && (forced || !is_bpe);
  }

  /// Whether tokenizer_config.json has added_tokens_decoder.
  [[nodiscard]] bool lists_added() const { return lists_added_; }

  /// The special tokens that the files name; nullopt if they name none.
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

  /// Adds a token to those matched in texts. A content that is not in the vocabulary gets the next id.
  void add(AddedToken token) {
    for (const AddedToken& known : parts_.added)
      if (known.content == token.content) return;
    token.id = parts_.model->vocabulary().id_of(token.content);
    if (token.id < 0) token.id = static_cast<std::int32_t>(next_id_++);
    parts_.added.push_back(std::move(token));
  }

  /// Adds the tokens of added_tokens_decoder, {"7": {"content": ...}, ...}, by id.
  void add_listed(const JsonView& json) {
    const auto listed = json.find("added_tokens_decoder");
    if (!listed) return;
    std::map<std::int64_t, JsonView> by_id;
    for (const auto& [key, value] : listed->object()) {
      const JsonView token = listed->member(value, key);
      std::int64_t id = -1;
      const auto [end, status] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (status != std::errc() || end != key.data() + key.size()) token.reject("must have an id as its key");
      by_id.emplace(id, token);
    }
    for (const auto& [id, json_token] : by_id) {
      const AddedToken token = token_of(json_token, false);
      const std::int32_t own = id_of(parts_, token.content);
      if (own < 0 ? id != next_id_ : id != own)
        json_token.reject(
            fmt::format("must be token {} of tokenizer.json, or the next id after its tokens", id),
            own < 0 ? fmt::format("none, {} tokens", next_id_) : std::to_string(own), "fix one of the files");
      add(token);
    }
  }

  /// Adds the tokens of keys such as "eos_token", and of lists of additional ones.
  void add_named(const JsonView& json, bool is_map) {
    for (const char* role : kRoles) {
      const auto token = json.find(role);
      if (!token) continue;
      const auto preferred = preferred_.find(role);
      const AddedToken named = preferred == preferred_.end() ? token_of(*token, true) : preferred->second;
      names_[role] = named.content;
      add(named);
    }
    for (const auto& [name, json_token] : model_specific_tokens(json, is_map)) {
      const AddedToken token = token_of(json_token, true);
      if (is_map && id_of(parts_, token.content) < 0)
        json_token.reject("must be a token of tokenizer.json", fmt::format("'{}'", token.content),
                          "name it in tokenizer_config.json");
      add(token);
    }
    const std::array lists = {json.find("extra_special_tokens"), json.find("additional_special_tokens")};
    for (const auto& list : lists)
      if (list && list->is_array())
        for (const JsonView& token : list->items()) add(token_of(token, true));
  }

  void set_bert_normalizer(const JsonView& json) {
    for (Normalizer& part : parts_.normalizers) {
      auto* bert = std::get_if<BertNormalizer>(&part);
      if (bert == nullptr) continue;
      if (json.find("do_lower_case")) bert->strip_accents = bert->lowercase = json.boolean("do_lower_case");
      bert->strip_accents = json.boolean("strip_accents", bert->strip_accents);
      bert->handle_chinese_chars = json.boolean("tokenize_chinese_chars", bert->handle_chinese_chars);
    }
  }

  /// Applies add_prefix_space if ByteLevel is the only pre-tokenizer. Llama's and similar classes rebuild the
  /// whole pipeline from the key, so it must agree with tokenizer.json.
  void set_prefix_space(const JsonView& json, const std::string& name) {
    const auto space = json.find("add_prefix_space");
    if (!space) return;
    std::vector<PreTokenizer>& steps = parts_.pre_tokenizers;
    if (steps.size() == 1 && std::holds_alternative<ByteLevelPreTokenizer>(steps[0])) {
      std::get<ByteLevelPreTokenizer>(steps[0]).add_prefix_space = space->boolean();
      return;
    }
    if (!has_bos_eos_keys(name)) return;
    bool adds_space = false;
    for (const Normalizer& part : parts_.normalizers)
      adds_space = adds_space || std::holds_alternative<Prepend>(part);
    for (const PreTokenizer& part : steps) {
      const auto* mark = std::get_if<MetaspacePreTokenizer>(&part);
      adds_space = adds_space || (mark != nullptr && mark->prepend != MetaspacePreTokenizer::Prepend::kNever);
    }
    if (adds_space != space->boolean())
      space->reject(
          fmt::format("must agree with tokenizer.json, because {} would rebuild the pipeline from it", name),
          space->boolean() ? "true" : "false",
          "change one of the files, or set tokenizer_class to PreTrainedTokenizerFast");
  }

  /// Whether add_bos_token and add_eos_token override the post-processor for a class.
  static bool has_bos_eos_keys(const std::string& name) {
    constexpr std::array kNames = {"LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer",
                                   "CohereTokenizer"};
    return std::ranges::find(kNames, name) != kNames.end();
  }

  /// Replaces the post-processor by "bos A eos" and "bos A eos bos B eos".
  void set_bos_eos(const JsonView& json) {
    if (!json.find("add_bos_token") && !json.find("add_eos_token")) return;
    const auto end_of = [&](const char* key, const char* role) {
      if (!json.boolean(key, false)) return std::int32_t{-1};
      if (!names_.contains(role)) json.at(key).reject(fmt::format("must have a {} to add", role), "none");
      return named(role);
    };
    const std::int32_t bos = end_of("add_bos_token", "bos_token"), eos = end_of("add_eos_token", "eos_token");
    using Piece = PostProcessor::Piece;
    std::vector<Piece> single, pair;
    for (const std::int32_t type : {0, 1}) {
      if (bos >= 0) pair.push_back({Piece::Kind::kSpecialToken, {bos}, type});
      pair.push_back({type == 0 ? Piece::Kind::kSequenceA : Piece::Kind::kSequenceB, {}, type});
      if (eos >= 0) pair.push_back({Piece::Kind::kSpecialToken, {eos}, type});
      if (type == 0) single = pair;
    }
    parts_.post_processor = {std::move(single), std::move(pair)};
  }

  TokenizerComponents& parts_;
  bool lists_added_ = false;  ///< whether there is an added_tokens_decoder
  std::int64_t next_id_;      ///< first unused id
  std::map<std::string, AddedToken> preferred_;
  std::map<std::string, std::string> names_;
};

/// Throws DataError for a folder without tokenizer.json; the message names the tokenizer files it has
/// instead.
void require_json_in(const fs::path& folder) {
  if (fs::is_regular_file(folder / "tokenizer.json")) return;
  std::string others;
  for (const char* name : {"tokenizer.model", "vocab.json", "vocab.txt", "spiece.model"})
    if (fs::is_regular_file(folder / name))
      others += fmt::format("{}{}", others.empty() ? "" : " and ", name);
  throw DataError(fmt::format(
      "{} must hold a tokenizer.json for HuggingFaceTokenizer; got a folder with {}; {}", folder.string(),
      others.empty() ? "no tokenizer file" : others + " instead",
      others.empty() ? "check --tokenizer-model"
                     : "write one with AutoTokenizer.from_pretrained(F).save_pretrained(F), or choose the "
                       "--tokenizer-type of these files"));
}

/// Sets the special tokens of a single file by the names that published tokenizers use.
void guess_special(HfTokenizer& tokenizer) {
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

std::vector<std::pair<std::string, JsonView>> model_specific_tokens(const JsonView& json, bool is_map) {
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

std::string main_file(const std::string& model) {
  if (!fs::is_directory(model)) return model;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"})
    if (const fs::path path = fs::path(model) / name; fs::is_regular_file(path)) return path.string();
  throw DataError(fmt::format(
      "{} must hold tokenizer.json, tokenizer.model, vocab.json or vocab.txt; got none; check --tokenizer-model",
      model));
}

std::unique_ptr<HfTokenizer> load_hugging_face(const std::string& model, bool special_in_documents) {
  if (model.empty())
    throw ConfigError(
        "--tokenizer-model must name a tokenizer.json, or a folder with one, for HuggingFaceTokenizer; got none; give its path");
  if (!fs::is_directory(model)) {
    auto tokenizer = read_tokenizer_json(model);
    guess_special(*tokenizer);
    return tokenizer;
  }
  const fs::path path(model);
  require_json_in(path);
  TokenizerComponents parts = read_tokenizer_components((path / "tokenizer.json").string());
  Folder folder(parts);
  const auto with = [&path](const char* name, const auto& use) {
    if (const std::string file = (path / name).string(); fs::is_regular_file(file))
      with_json(file, read_file(file), use);
  };
  with("special_tokens_map.json", [&](const JsonView& map) { folder.read_token_map(map); });
  with("tokenizer_config.json", [&](const JsonView& json) {
    folder.read_config(json, false);
    folder.read_clean_up(json);
  });
  if (!folder.lists_added())
    with("special_tokens_map.json", [&](const JsonView& map) { folder.read_config(map, true); });
  const auto special = folder.special();
  auto tokenizer = std::make_unique<HfTokenizer>(std::move(parts));
  if (special)
    tokenizer->set_special(*special);
  else
    guess_special(*tokenizer);
  tokenizer->set_special_in_documents(special_in_documents);
  return tokenizer;
}

}  // namespace colonnade::tokenizers
