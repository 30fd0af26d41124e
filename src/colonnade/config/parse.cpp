// Words to settings: the command line's shape, Megatron's combined flags, the classes of flags.
#include "colonnade/config/parse.h"

#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/config/access.h"
#include "colonnade/config/given.h"

namespace colonnade::config {

namespace {

constexpr int kCommandLine = 1 << 20;  // above every YAML file
constexpr const char* kTyped = "the command line";

bool is_flag(const std::string& word) { return word.size() > 2 && word.starts_with("--"); }

std::string shown(const Words& words) {
  return words.empty() ? "nothing" : fmt::format("\"{}\"", fmt::join(words, " "));
}

/// Splits the command line into settings, YAML files and a verb's own flags.
class CommandLine {
 public:
  CommandLine(const std::vector<std::string>& arguments, const std::vector<Extra>& extras, Parsed& out,
              GivenSet& given)
      : arguments_(arguments), extras_(extras), out_(out), given_(given) {}

  void read() {
    if (!arguments_.empty() && !arguments_[0].starts_with('-')) {
      put(setting("model"), {arguments_[at_++]}, "pretrain");
    }
    while (at_ < arguments_.size()) {
      const std::string& word = arguments_[at_++];
      if (is_flag(word)) {
        flag(word);
      } else {
        given_.faults.push_back(
            fmt::format("{}: every value follows its flag; got a word that no flag takes{}; "
                        "remove it, or quote it with the value it belongs to",
                        shown({word}), last_.empty() ? "" : " after " + last_));
      }
    }
    int level = 0;
    for (const std::string& path : files_) read_yaml(path, ++level, given_);
  }

 private:
  void flag(const std::string& word) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    std::optional<std::string> value;
    if (equals != std::string::npos) value = word.substr(equals + 1);
    last_ = name;
    if (const Extra* extra = extra_of(name)) return verb_flag(*extra, name, value);
    const auto match = find(name);
    if (!match) {
      std::vector<std::string> more;
      for (const Extra& extra : extras_) more.push_back(extra.flag);
      given_.faults.push_back(unknown(name, name, more));
      words_of(-1, value);
      return;
    }
    const Setting& s = *match->setting;
    if (s.kind == Kind::kSwitch) {
      if (value && *value != "true" && *value != "false") {
        given_.faults.push_back(fmt::format(
            "{}: takes no value, or true or false; got \"{}\"; write {} alone", name, *value, name));
        return;
      }
      const bool on = !value || *value == "true";
      return put(s, {on != match->off ? "true" : "false"}, name);
    }
    const Words words = words_of(s.kind == Kind::kList ? -1 : 1, value);
    if (s.kind != Kind::kList && words.empty()) return needs_value(name);
    if (s.key == "config")
      files_.push_back(words[0]);
    else
      put(s, words, name);
  }

  void verb_flag(const Extra& extra, const std::string& name, const std::optional<std::string>& value) {
    const Words words = words_of(extra.values, value);
    if (extra.values == 1 && words.empty()) return needs_value(name);
    out_.extras.insert_or_assign(extra.flag, words);
  }

  void needs_value(const std::string& name) {
    given_.faults.push_back(fmt::format(
        "{}: needs a value; got {}; write {} VALUE", name,
        at_ < arguments_.size() ? "the flag " + arguments_[at_] : "the end of the command line", name));
  }

  /// The next `count` words, -1: all, up to the next flag; `value` is the text after '='.
  Words words_of(int count, const std::optional<std::string>& value) {
    if (value) return {*value};
    Words words;
    while (at_ < arguments_.size() && !is_flag(arguments_[at_]) && count != 0) {
      words.push_back(arguments_[at_++]);
      --count;
    }
    return words;
  }

  const Extra* extra_of(std::string name) const {
    std::replace(name.begin(), name.end(), '_', '-');
    const auto found =
        std::find_if(extras_.begin(), extras_.end(), [&](const Extra& e) { return e.flag == name; });
    return found == extras_.end() ? nullptr : &*found;
  }

  void put(const Setting& s, Words words, const std::string& spelled) {
    given_.put(s.key, {std::move(words), kTyped, spelled, kCommandLine});
  }

  const std::vector<std::string>& arguments_;
  const std::vector<Extra>& extras_;
  Parsed& out_;
  GivenSet& given_;
  std::vector<std::string> files_;
  std::string last_;
  std::size_t at_ = 0;
};

/// Equal as text or as numbers: "1.0" and "1".
bool same_value(const std::string& a, const std::string& b) {
  double x = 0, y = 0;
  if (read_number(a, x) && read_number(b, y)) return x == y;
  return a == b || (a.empty() && b == "None") || (a == "None" && b.empty());
}

bool asks_for_default(const Setting& s, const Words& words) {
  return same_value(fmt::format("{}", fmt::join(words, " ")), s.megatron_default);
}

void refused_or_always(const Setting& s, const Given& g, GivenSet& given) {
  if (s.cls == Class::kRefused) {
    if (asks_for_default(s, g.words)) return;
    given.faults.push_back(fmt::format("{}: {}; got {}; {}", g.spelled, s.help, shown(g.words), s.way_out));
    return;
  }
  const bool accepted =
      s.choices.empty() ||
      (g.words.size() == 1 && std::find(s.choices.begin(), s.choices.end(), g.words[0]) != s.choices.end());
  if (!accepted) {
    given.faults.push_back(fmt::format("{}: {}, so it must be {}; got {}; leave it out", g.spelled, s.help,
                                       fmt::join(s.choices, " or "), shown(g.words)));
  } else if (!asks_for_default(s, g.words)) {
    given.notes.push_back(fmt::format("{}: {}", s.flag, s.help));
  }
}

/// Replaces shorthands (--swiglu, --bf16, ...) by the setting they stand for.
void expand_shorthands(GivenSet& given) {
  std::map<std::string, std::vector<std::pair<std::string, Given>>> asked;  // key: words, by whom
  for (const Setting& s : schema()) {
    const Given* g = s.shorthand_key.empty() ? nullptr : given.find(s.key);
    if (g != nullptr && g->words == Words{"true"}) asked[s.shorthand_key].emplace_back(s.shorthand_word, *g);
  }
  for (auto& [key, claims] : asked) {
    if (const Given* own = given.find(key))
      claims.emplace_back(own->words.empty() ? "" : own->words[0], *own);
    int top = 0;
    for (const auto& claim : claims) top = std::max(top, claim.second.level);
    std::erase_if(claims, [&](const auto& claim) { return claim.second.level < top; });
    for (const auto& [word, g] : claims) {
      if (word == claims[0].first) continue;
      given.faults.push_back(fmt::format(
          "{} and {}: say different things about --{}; got {} and {}; leave one out",
          claims[0].second.spelled, g.spelled, setting(key).flag.substr(2), claims[0].first, word));
    }
    Given winner = claims[0].second;
    winner.words = {claims[0].first};
    given.by_key.insert_or_assign(key, winner);
  }
}

bool is_on(const GivenSet& given, const std::string& key, bool otherwise) {
  const Given* g = given.find(key);
  return g == nullptr ? otherwise : g->words == Words{"true"};
}

/// Megatron's plain GELU is the tanh form when biases are on and fusion is not switched off.
void choose_gelu(const GivenSet& given, Run& run) {
  if (given.find("activation") != nullptr) return;
  const bool fused = is_on(given, "bias_gelu_fusion", true) && run.model.add_bias_linear;
  run.model.activation = fused ? Activation::kGeluTanh : Activation::kGeluErf;
}

/// --num-query-groups counts with --group-query-attention only, and is then 1 by default.
void group_queries(GivenSet& given, Run& run) {
  Model& m = run.model;
  const Given* groups = given.find("num_query_groups");
  const Given* grouped = given.find("group_query_attention");
  if (is_on(given, "group_query_attention", false)) {
    if (m.num_query_groups == 0) m.num_query_groups = 1;
    if (groups == nullptr) given.put("num_query_groups", *grouped);
  } else if (m.num_query_groups != 0 && m.num_query_groups != m.num_attention_heads) {
    given.faults.push_back(
        fmt::format("{}: has a meaning with --group-query-attention only; got {} groups for {} heads; "
                    "add --group-query-attention",
                    groups->spelled, m.num_query_groups, m.num_attention_heads));
  }
}

void translate(GivenSet& given, Run& run) {
  choose_gelu(given, run);
  group_queries(given, run);
  const Given* positions = given.find("add_position_embedding");
  if (positions != nullptr && positions->words == Words{"false"} &&
      run.model.position_embedding == PositionEmbedding::kLearnedAbsolute) {
    given.faults.push_back(
        fmt::format("{}: must not meet learned positions; got --position-embedding-type learned_absolute; "
                    "write --position-embedding-type none or rope",
                    positions->spelled));
  }
}

void apply(GivenSet& given, Run& run) {
  expand_shorthands(given);
  for (const Setting& s : schema()) {
    const Given* g = given.find(s.key);
    if (g == nullptr) continue;
    if (s.cls != Class::kImplemented) {
      refused_or_always(s, *g, given);
      continue;
    }
    if (s.kind == Kind::kSwitch && g->words != Words{"true"} && g->words != Words{"false"}) {
      given.faults.push_back(
          fmt::format("{}: must be true or false; got {}; write one of them", g->spelled, shown(g->words)));
      continue;
    }
    run.given[s.key] = g->where;
    if (s.set == nullptr) continue;
    const std::string broken = assign(run, s, g->words);
    if (!broken.empty()) {
      given.faults.push_back(fmt::format("{}: {}; got {}; see `colonnade help {}`", g->spelled, broken,
                                         shown(g->words), s.flag));
    }
  }
  translate(given, run);
  if (const Given* groups = given.find("num_query_groups")) run.given["num_query_groups"] = groups->where;
}

}  // namespace

void GivenSet::put(const std::string& key, Given given) {
  const auto found = by_key.find(key);
  if (found == by_key.end() || found->second.level <= given.level)
    by_key.insert_or_assign(key, std::move(given));
}

const Given* GivenSet::find(const std::string& key) const {
  const auto found = by_key.find(key);
  return found == by_key.end() ? nullptr : &found->second;
}

std::string unknown(const std::string& thing, std::string_view name, const std::vector<std::string>& more) {
  const std::string near = nearest(name, more);
  const std::string way_out =
      near.empty() ? "`--help-all` lists every setting" : fmt::format("did you mean {}?", near);
  return fmt::format("{}: must be a known setting; got {}; {}", thing, name, way_out);
}

Parsed parse_all(const std::vector<std::string>& arguments, const std::vector<Extra>& extras) {
  Parsed parsed;
  GivenSet given;
  CommandLine(arguments, extras, parsed, given).read();
  apply(given, parsed.run);
  parsed.faults = std::move(given.faults);
  parsed.file_unread = given.file_unread;
  parsed.run.notes = std::move(given.notes);
  return parsed;
}

Run parse(const std::vector<std::string>& arguments) {
  Parsed parsed = parse_all(arguments);
  require_none(parsed.faults);
  return std::move(parsed.run);
}

void require_none(const std::vector<std::string>& faults) {
  if (faults.empty()) return;
  if (faults.size() == 1) throw ConfigError(faults[0]);
  throw ConfigError(fmt::format("{} settings are wrong:\n  {}", faults.size(), fmt::join(faults, "\n  ")));
}

}  // namespace colonnade::config
