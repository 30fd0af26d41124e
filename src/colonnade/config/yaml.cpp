// YAML recipes: flat keys, lists, `<<` merges (yaml-cpp does not resolve them).
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/base/file_kind.h"
#include "colonnade/base/files.h"
#include "colonnade/config/access.h"
#include "colonnade/config/given.h"

namespace colonnade::config {

namespace {

constexpr std::size_t kLargestFile = 4 << 20;
constexpr int kDeepestMerge = 16;
constexpr int kMostMerges = 1000;  // lists of lists of anchors grow without end

class Reader {
 public:
  Reader(std::string path, int level, GivenSet& out) : path_(std::move(path)), level_(level), out_(out) {}

  void read() {
    try {
      std::error_code error;
      if (std::filesystem::is_directory(path_, error)) {
        return unread(
            fmt::format("{}: must be a YAML file; got a folder; name a file, e.g. its config.yaml", path_));
      }
      const std::string text = read_file(path_);
      if (text.size() > kLargestFile) {
        return unread(
            fmt::format("{}: a YAML file of settings must be at most {} bytes; got {}; name another file",
                        path_, kLargestFile, text.size()));
      }
      if (const std::string_view kind = file_kind({text.data(), std::min<std::size_t>(text.size(), 1024)});
          !kind.empty() && !text.empty()) {
        return unread(
            fmt::format("{}: must be a YAML file of settings; got {}; name another file, or write `key: "
                        "value` lines",
                        path_, kind));
      }
      const YAML::Node root = only_document(text);
      if (root.IsNull()) return;
      if (!root.IsMap()) {
        return unread(fmt::format("{}: must hold `key: value` lines; got {}; see `colonnade help --markdown`",
                                  path_, root.IsSequence() ? "a list" : "one value"));
      }
      map(root, 0);
    } catch (const YAML::Exception& e) {
      unread(fmt::format("{}:{}: must be YAML; got an error at column {}: {}; mend that line", path_,
                         e.mark.line + 1, e.mark.column + 1, e.msg));
    } catch (const DataError& e) {
      unread(fmt::format("--config: must name a file that can be read; got {}; name another", e.what()));
    }
  }

 private:
  void fault(std::string text) { out_.faults.push_back(std::move(text)); }
  void unread(std::string text) {
    fault(std::move(text));
    out_.cut_short = true;
  }

  /// The document that is not empty; a fault when there are several.
  YAML::Node only_document(const std::string& text) {
    YAML::Node found;
    for (const YAML::Node& document : YAML::LoadAll(text)) {
      if (document.IsNull()) continue;
      if (!found.IsNull()) {
        unread(
            fmt::format("{}:{}: a YAML file of settings must hold one document; got another after `---`; "
                        "join them, or put it in a file of its own and give --config twice",
                        path_, line(document)));
        return {};
      }
      found.reset(document);
    }
    return found;
  }

  /// Own keys before merged ones: the first to be seen wins. In one map a setting has one spelling.
  void map(const YAML::Node& node, int depth) {
    std::map<std::string, std::string> here;  // a setting's key, or an unknown name: its spelling
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) {
        fault(fmt::format("{}:{}: keys must be names; got a list or map; write `key: value`", path_,
                          line(entry.first)));
        continue;
      }
      const std::string& key = entry.first.Scalar();
      if (key == "<<") continue;
      const auto match = find(key);
      const auto [before, is_new] = here.emplace(match ? match->setting->key : key, key);
      if (!is_new) {
        fault(fmt::format("{}:{}: {}: must be given once; got {}; leave one out", path_, line(entry.first),
                          key, before->second == key ? "it twice" : before->second + " too"));
      } else if (entry.second.IsMap() && depth == 0 && is_anchor(key)) {
        continue;
      } else {
        value(key, line(entry.first), entry.second);
      }
    }
    for (const auto& entry : node) {
      if (entry.first.IsScalar() && entry.first.Scalar() == "<<") merge(entry.second, depth);
    }
  }

  /// Maps that serve `<<` may stand under keys that begin with "x-" or ".".
  static bool is_anchor(const std::string& key) { return key.starts_with("x-") || key.starts_with('.'); }

  void merge(const YAML::Node& node, int depth) {
    if (depth >= kDeepestMerge || merges_ >= kMostMerges) {
      if (!std::exchange(stopped_, true)) {
        fault(fmt::format(
            "{}:{}: <<: must nest at most {} deep and merge at most {} maps; got more; merge flat maps",
            path_, line(node), kDeepestMerge, kMostMerges));
      }
      return;
    }
    ++merges_;
    if (node.IsSequence()) {
      for (const auto& part : node) merge(part, depth + 1);
    } else if (node.IsMap()) {
      map(node, depth + 1);
    } else {
      fault(fmt::format("{}:{}: <<: must name a map or a list of maps; got a value; write `<<: *anchor`",
                        path_, line(node)));
    }
  }

  void value(const std::string& key, int line, const YAML::Node& node) {
    const std::string thing = fmt::format("{}:{}: {}", path_, line, key);
    const auto match = find(key);
    if (!match) return fault(unknown(thing, key));
    const Setting& s = *match->setting;
    if (!seen_.insert(s.key).second || node.IsNull()) return;
    if (s.key == "config") {
      return fault(fmt::format(
          "{}: a YAML file cannot name another; got one; merge with <<, or give --config twice", thing));
    }
    Words words;
    if (!words_of(s, node, words)) {
      return out_.fault(s, fmt::format("{}: must be {}; got {}; settings are flat", thing,
                                       s.kind == Kind::kList ? "a list of values" : "one value",
                                       node.IsMap() ? "a map" : "a list of lists or maps"));
    }
    if (s.kind == Kind::kSwitch && match->off && words.size() == 1) {
      if (words[0] == "true")
        words[0] = "false";
      else if (words[0] == "false")
        words[0] = "true";
    }
    out_.put(s.key, {std::move(words), fmt::format("{}:{}", path_, line), thing, level_});
  }

  static bool words_of(const Setting& s, const YAML::Node& node, Words& words) {
    if (node.IsScalar()) {
      words.push_back(s.kind == Kind::kSwitch ? truth(node.Scalar()) : node.Scalar());
      return true;
    }
    if (!node.IsSequence()) return false;
    for (const auto& part : node) {
      if (!part.IsScalar() && s.kind == Kind::kText) return whole_text(node, words);
      if (!part.IsScalar()) return false;
      words.push_back(part.Scalar());
    }
    if (s.kind != Kind::kList) words = {fmt::format("{}", fmt::join(words, ","))};
    return true;
  }

  /// Lists of lists as Python writes them.
  static bool whole_text(const YAML::Node& node, Words& words) {
    std::string text = "[";
    for (const auto& part : node) {
      Words inner;
      if (part.IsSequence() ? !whole_text(part, inner) : !part.IsScalar()) return false;
      text += (text.size() == 1 ? "" : ",") + (inner.empty() ? part.Scalar() : inner[0]);
    }
    words = {text + "]"};
    return true;
  }

  /// YAML's words for true and false.
  static std::string truth(std::string word) {
    std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
    if (word == "yes" || word == "on") return "true";
    if (word == "no" || word == "off") return "false";
    return word;
  }

  static int line(const YAML::Node& node) { return node.Mark().line + 1; }

  std::string path_;
  int level_;
  GivenSet& out_;
  std::set<std::string> seen_;
  int merges_ = 0;
  bool stopped_ = false;
};

}  // namespace

void read_yaml(const std::string& path, int level, GivenSet& out) { Reader(path, level, out).read(); }

}  // namespace colonnade::config
