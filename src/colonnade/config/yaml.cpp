// YAML settings files: flat keys, lists, `<<` merges (yaml-cpp does not resolve them); and Megatron's nested
// form with sections and environment variables.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/base/file_kind.h"
#include "colonnade/base/files.h"
#include "colonnade/config/access.h"
#include "colonnade/config/given.h"
#include "colonnade/config/nested_keys.h"

namespace colonnade::config {

namespace {

constexpr std::size_t kMaxFileBytes = 4 << 20;
constexpr int kMaxMergeDepth = 16;
constexpr int kMaxMerges = 1000;  // nested lists of anchors grow exponentially
constexpr const char* kFlat = "config";
constexpr const char* kNested = "yaml_cfg";
constexpr const char* kQuoted = "!";  // yaml-cpp's tag of quoted scalars

class Reader {
 public:
  Reader(const Setting& flag, std::string path, int level, GivenSet& out)
      : flag_(flag),
        nested_(flag.key == kNested),
        path_(std::move(path)),
        level_(level),
        out_(out),
        fields_(out) {}

  void read() {
    try {
      std::error_code error;
      if (std::filesystem::is_directory(path_, error)) {
        return reject_file(
            fmt::format("{} must be a YAML file; got a folder; name a file, e.g. its config.yaml", path_));
      }
      const std::string text = read_file(path_);
      if (text.size() > kMaxFileBytes) {
        return reject_file(
            fmt::format("{}: a YAML file of settings must be at most {} bytes; got {}; name another file",
                        path_, kMaxFileBytes, text.size()));
      }
      if (const std::string_view kind = file_kind({text.data(), std::min<std::size_t>(text.size(), 1024)});
          !kind.empty() && !text.empty()) {
        return reject_file(
            fmt::format("{} must be a YAML file of settings; got {}; name another file, or write `key: "
                        "value` lines",
                        path_, kind));
      }
      const YAML::Node root = only_document(text);
      if (root.IsNull()) return;
      if (!root.IsMap()) {
        return reject_file(
            fmt::format("{} must hold `key: value` lines; got {}; see `colonnade help --markdown`", path_,
                        root.IsSequence() ? "a list" : "one value"));
      }
      map(root, 0);
      if (nested_) fields_.finish(level_);
    } catch (const YAML::Exception& e) {
      reject_file(fmt::format("{}:{} must be YAML; got an error at column {}: {}; fix that line", path_,
                              e.mark.line + 1, e.mark.column + 1, e.msg));
    } catch (const DataError& e) {
      reject_file(fmt::format("{} must name a readable file; got {}; choose another", flag_.flag, e.what()));
    }
  }

 private:
  void fault(std::string text) { out_.faults.push_back(std::move(text)); }
  void reject_file(std::string text) {
    fault(std::move(text));
    out_.is_incomplete = true;
  }

  /// The only non-empty document; an error if there are several.
  YAML::Node only_document(const std::string& text) {
    YAML::Node found;
    for (const YAML::Node& document : YAML::LoadAll(text)) {
      if (document.IsNull()) continue;
      if (!found.IsNull()) {
        reject_file(
            fmt::format("{}:{}: a YAML file of settings must hold one document; got another after `---`; "
                        "merge them, or use separate files and give {} twice",
                        path_, line(document), flag_.flag));
        return {};
      }
      found.reset(document);
    }
    return found;
  }

  /// Keys of one map, including the sections of a nested file.
  struct Keys {
    std::set<std::string> spellings;
    std::map<std::string, std::string> settings;  ///< spelling by setting key or unknown name
    std::set<std::string> unset;                  ///< those with a null value
    std::vector<YAML::Node> merged;
  };

  /// Own keys before merged ones: the first one seen takes precedence. A map may spell a setting only once.
  void map(const YAML::Node& node, int depth) {
    Keys here;
    entries(node, depth == 0, here);
    seen_.merge(here.unset);
    for (const YAML::Node& below : here.merged) merge(below, depth);
  }

  void entries(const YAML::Node& node, bool at_top, Keys& here) {
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) {
        fault(fmt::format("{}:{}: keys must be names; got a list or map; write `key: value`", path_,
                          line(entry.first)));
        continue;
      }
      const std::string& key = entry.first.Scalar();
      const bool section = nested_ && is_section(key);
      if (key == "<<") {
        here.merged.push_back(entry.second);
      } else if (section && !at_top) {
        fault(
            fmt::format("{}:{}: {} must be at the top of the file; got it inside another map; move it there",
                        path_, line(entry.first), key));
      } else if (is_first(entry.first, entry.second, here)) {
        if (entry.second.IsMap() && at_top && is_anchor(key)) continue;
        if (section)
          read_section(entry.first, entry.second, here);
        else
          value(key, line(entry.first), entry.second, here);
      }
    }
  }

  /// False, with an error, for a setting that the map already contains. A null setting may be repeated under
  /// another spelling.
  bool is_first(const YAML::Node& name, const YAML::Node& node, Keys& here) {
    const std::string& key = name.Scalar();
    std::string before = key;
    bool is_new = here.spellings.insert(key).second;
    if (is_new && !is_unset(node)) {
      const auto placed = here.settings.emplace(identity(key), key);
      is_new = placed.second;
      before = placed.first->second;
    }
    if (!is_new) {
      fault(fmt::format("{}:{}: {} must be given once; got {}; remove one", path_, line(name), key,
                        before == key ? "it twice" : before + " too"));
    }
    return is_new;
  }

  void read_section(const YAML::Node& name, const YAML::Node& node, Keys& here) {
    if (node.IsMap()) {
      entries(node, /*at_top=*/false, here);
    } else if (!is_unset(node)) {
      fault(fmt::format("{}:{}: {} must be a section of `key: value` lines; got {}; indent its keys below it",
                        path_, line(name), name.Scalar(), node.IsSequence() ? "a list" : "one value"));
    }
  }

  /// Maps for `<<` are allowed under keys that start with "x-" or ".".
  static bool is_anchor(const std::string& key) { return key.starts_with("x-") || key.starts_with('.'); }

  void merge(const YAML::Node& node, int depth) {
    if (depth >= kMaxMergeDepth || merges_ >= kMaxMerges) {
      if (!std::exchange(stopped_, true)) {
        fault(fmt::format(
            "{}:{}: << must nest at most {} deep and merge at most {} maps; got more; merge flat maps", path_,
            line(node), kMaxMergeDepth, kMaxMerges));
      }
      return;
    }
    ++merges_;
    if (node.IsSequence()) {
      for (const auto& part : node) merge(part, depth + 1);
    } else if (node.IsMap()) {
      map(node, depth + 1);
    } else {
      fault(fmt::format("{}:{}: << must name a map or a list of maps; got a value; write `<<: *anchor`",
                        path_, line(node)));
    }
  }

  void value(const std::string& key, int line, const YAML::Node& node, Keys& here) {
    const std::string thing = fmt::format("{}:{}: {}", path_, line, key);
    const auto match = find(name_of(key));
    const auto field = nested_ ? field_kind(key) : std::nullopt;
    if (nested_ && node.IsMap()) return report_unknown_section(thing);
    if (!match && !field) return report_unknown_key(thing, key, node);
    if (seen_.contains(identity(key))) return;  // set by a map with precedence
    (is_unset(node) ? here.unset : seen_).insert(identity(key));
    if (is_unset(node)) return;
    violated_.clear();
    Given given{{}, fmt::format("{}:{}", path_, line), thing, level_};
    if (field && handle_field(key, *field, node, given)) return;
    if (match) put(*match, node, std::move(given));
  }

  void report_unknown_section(const std::string& thing) {
    fault(
        fmt::format("{} must be one value; got a map; only language_model and model_parallel are sections; "
                    "move its keys to the top level",
                    thing));
  }

  void report_unknown_key(const std::string& thing, const std::string& key, const YAML::Node& node) {
    if (!nested_ && is_section(key) && node.IsMap()) {
      return fault(
          fmt::format("{} must be a known setting; got a section of Megatron's nested YAML; give the "
                      "file with {}",
                      thing, setting(kNested).flag));
    }
    fault(unknown(thing, key, nested_ ? field_names() : Words{}));
  }

  /// True if the field or its value does not belong to a setting.
  bool handle_field(const std::string& key, Kind kind, const YAML::Node& node, Given& given) {
    if (!words_of(kind, node, given.words)) {
      fault(fmt::format("{} must be one value; got a list of lists or maps; write one", given.spelled));
      return true;
    }
    if (violated_.empty()) return fields_.take(key, given);
    fault(fmt::format("{}: {}", given.spelled, violated_));
    return true;
  }

  void put(const Match& match, const YAML::Node& node, Given given) {
    const Setting& s = *match.setting;
    if (is_settings_file(s)) {
      return fault(
          fmt::format("{}: a YAML file cannot name another; got one; merge with <<, or give {} twice",
                      given.spelled, flag_.flag));
    }
    given.words.clear();
    if (!words_of(s.kind, node, given.words)) {
      return out_.fault(s, fmt::format("{} must be {}; got {}; settings are flat", given.spelled,
                                       s.kind == Kind::kList ? "a list of values" : "one value",
                                       node.IsMap() ? "a map" : "a list of lists or maps"));
    }
    if (!violated_.empty()) return out_.fault(s, fmt::format("{}: {}", given.spelled, violated_));
    if (s.kind == Kind::kSwitch && match.off && given.words.size() == 1) {
      if (given.words[0] == "true")
        given.words[0] = "false";
      else if (given.words[0] == "false")
        given.words[0] = "true";
    }
    if (nested_ && node.IsScalar()) given.words = setting_words(s, given.words[0]);
    out_.put(s.key, std::move(given));
  }

  bool words_of(Kind kind, const YAML::Node& node, Words& words) {
    if (node.IsScalar()) {
      words.push_back(kind == Kind::kSwitch ? boolean_text(text(node)) : text(node));
      return true;
    }
    if (!node.IsSequence()) return false;
    for (const auto& part : node) {
      if (!part.IsScalar() && kind == Kind::kText) return nested_list_text(node, words);
      if (!part.IsScalar()) return false;
      words.push_back(text(part));
    }
    if (kind != Kind::kList) words = {fmt::format("{}", fmt::join(words, ","))};
    return true;
  }

  /// Nested lists in Python syntax.
  bool nested_list_text(const YAML::Node& node, Words& words) {
    std::string all = "[";
    for (const auto& part : node) {
      Words inner;
      if (part.IsSequence() ? !nested_list_text(part, inner) : !part.IsScalar()) return false;
      all += (all.size() == 1 ? "" : ",") + (inner.empty() ? text(part) : inner[0]);
    }
    words = {all + "]"};
    return true;
  }

  /// Text of a scalar. In a nested file ${NAME} expands to an environment variable, except in quotes (as
  /// PyYAML's implicit resolvers). A violated rule is stored in violated_.
  std::string text(const YAML::Node& node) {
    const std::string& all = node.Scalar();
    if (!nested_ || node.Tag() == kQuoted) return all;
    std::string out;
    std::size_t at = 0;
    for (std::size_t begin; (begin = all.find("${", at)) != std::string::npos;) {
      const std::size_t end = all.find('}', begin);
      if (end == std::string::npos) break;
      const std::string name = all.substr(begin + 2, end - begin - 2);
      const char* const variable = std::getenv(name.c_str());
      const std::string value = variable == nullptr ? "" : variable;
      expanded_ += value.size();
      if (variable == nullptr) {
        violated_ = fmt::format(
            "every ${{NAME}} must be set in the environment; got ${{{0}}} unset; export {0}", name);
      } else if (expanded_ > kMaxFileBytes) {
        violated_ = fmt::format("environment variables must add at most {} bytes; got more; shorten {}",
                                kMaxFileBytes, name);
      }
      if (!violated_.empty()) return "";
      out += all.substr(at, begin - at) + value;
      at = end + 1;
    }
    return out + all.substr(at);
  }

  /// Whether the value leaves a setting unchanged: null, or Python's None in a nested file.
  [[nodiscard]] bool is_unset(const YAML::Node& node) const {
    return node.IsNull() || (nested_ && node.IsScalar() && node.Tag() != kQuoted && node.Scalar() == "None");
  }

  /// Key of the setting named by `key`, or `key` itself if unknown.
  [[nodiscard]] std::string identity(const std::string& key) const {
    const auto match = find(name_of(key));
    return match ? match->setting->key : key;
  }

  /// Setting name of a key.
  [[nodiscard]] std::string_view name_of(const std::string& key) const {
    return nested_ ? setting_name(key) : std::string_view(key);
  }

  /// Normalizes YAML booleans to true and false.
  static std::string boolean_text(std::string word) {
    std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
    if (word == "yes" || word == "on") return "true";
    if (word == "no" || word == "off") return "false";
    return word;
  }

  static int line(const YAML::Node& node) { return node.Mark().line + 1; }

  const Setting& flag_;  ///< the flag that named the file
  bool nested_;
  std::string path_;
  int level_;
  GivenSet& out_;
  NestedKeys fields_;  ///< fields of a nested file
  std::set<std::string> seen_;
  std::string violated_;  ///< rule violated by the current scalar, with the fix
  std::size_t expanded_ = 0;
  int merges_ = 0;
  bool stopped_ = false;
};

}  // namespace

bool is_settings_file(const Setting& setting) { return setting.key == kFlat || setting.key == kNested; }

void read_yaml(const Setting& flag, const std::string& path, int level, GivenSet& out) {
  Reader(flag, path, level, out).read();
}

}  // namespace colonnade::config
