// Words to settings: command-line syntax, Megatron's combined flags, flag classes.
#include "colonnade/config/parse.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/config/access.h"
#include "colonnade/config/given.h"
#include "colonnade/config/nearest.h"

namespace colonnade::config {

namespace {

constexpr int kCommandLine = 1 << 20;  // above every YAML file
constexpr const char* kTyped = "the command line";

bool is_flag(const std::string& word) { return word.size() > 2 && word.starts_with("--"); }

std::string shown(const Words& words) {
  return words.empty() ? "nothing" : fmt::format("\"{}\"", fmt::join(words, " "));
}

/// Items of a list written in brackets, "[a b]" or "[a, b]", in one word or several.
Words without_brackets(Words words) {
  const std::string text = fmt::format("{}", fmt::join(words, " "));
  if (!text.starts_with('[') || !text.ends_with(']')) return words;
  words.clear();
  std::string_view rest(text);
  for (std::size_t from; (from = rest.find_first_not_of("[], ")) != std::string_view::npos;) {
    rest.remove_prefix(from);
    words.emplace_back(rest.substr(0, rest.find_first_of("[], ")));
    rest.remove_prefix(words.back().size());
  }
  return words;
}

/// Splits the command line into settings, YAML files and a verb's own flags.
class CommandLine {
 public:
  CommandLine(const std::vector<std::string>& arguments, const std::vector<VerbFlag>& extras, Use use,
              Parsed& out, GivenSet& given)
      : arguments_(arguments), extras_(extras), use_(use), out_(out), given_(given) {}

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
            fmt::format("{} must follow a flag; got a word that no flag accepts{}; "
                        "remove it, or quote it with its value",
                        shown({word}), last_.empty() ? "" : " after " + last_));
      }
    }
    int level = 0;
    for (const auto& [file, path] : files_) read_yaml(*file, path, ++level, given_);
  }

 private:
  void flag(const std::string& word) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    std::optional<std::string> value;
    if (equals != std::string::npos) value = word.substr(equals + 1);
    last_ = name;
    if (const VerbFlag* extra = extra_of(name)) return verb_flag(*extra, name, value);
    const auto match = find(name);
    if (!match) {
      given_.faults.push_back(unknown(name, name, flags_of(extras_), use_));
      words_of(-1, value);
      return;
    }
    const Setting& s = *match->setting;
    if (s.kind == Kind::kSwitch) {
      if (value && *value != "true" && *value != "false") {
        return given_.fault(s, fmt::format("{} must have no value, true or false; got \"{}\"; write {} alone",
                                           name, *value, name));
      }
      const bool on = !value || *value == "true";
      return put(s, {on != match->off ? "true" : "false"}, name);
    }
    Words words = words_of(s.kind == Kind::kList ? -1 : 1, value);
    if (s.kind == Kind::kList) words = without_brackets(std::move(words));
    if (s.kind != Kind::kList && words.empty()) {
      given_.invalid_keys.insert(s.key);
      return needs_value(name);
    }
    if (is_settings_file(s))
      files_.emplace_back(&s, words[0]);
    else
      put(s, words, name);
  }

  void verb_flag(const VerbFlag& extra, const std::string& name, const std::optional<std::string>& value) {
    const Words words = words_of(extra.values(), value);
    if (extra.values() == 1 && words.empty()) return needs_value(name);
    out_.extras.insert_or_assign(extra.flag, words);
  }

  void needs_value(const std::string& name) {
    given_.faults.push_back(fmt::format(
        "{} needs a value; got {}; write {} VALUE", name,
        at_ < arguments_.size() ? "the flag " + arguments_[at_] : "the end of the command line", name));
  }

  /// The next `count` words up to the next flag, -1: all; `value` is the text after '='.
  Words words_of(int count, const std::optional<std::string>& value) {
    if (value) return {*value};
    Words words;
    while (at_ < arguments_.size() && !is_flag(arguments_[at_]) && count != 0) {
      words.push_back(arguments_[at_++]);
      --count;
    }
    return words;
  }

  const VerbFlag* extra_of(std::string name) const {
    std::replace(name.begin(), name.end(), '_', '-');
    const auto found =
        std::find_if(extras_.begin(), extras_.end(), [&](const VerbFlag& e) { return e.flag == name; });
    return found == extras_.end() ? nullptr : &*found;
  }

  void put(const Setting& s, Words words, const std::string& spelled) {
    given_.put(s.key, {std::move(words), kTyped, spelled, kCommandLine});
  }

  const std::vector<std::string>& arguments_;
  const std::vector<VerbFlag>& extras_;
  Use use_;
  Parsed& out_;
  GivenSet& given_;
  std::vector<std::pair<const Setting*, std::string>> files_;
  std::string last_;
  std::size_t at_ = 0;
};

/// Whether two values are equal as text or as numbers ("1.0" and "1").
bool is_same_value(const std::string& a, const std::string& b) {
  double x = 0, y = 0;
  if (read_number(a, x) && read_number(b, y)) return x == y;
  return a == b || (a.empty() && b == "None") || (a == "None" && b.empty());
}

bool asks_for_default(const Setting& s, const Words& words) {
  return is_same_value(fmt::format("{}", fmt::join(words, " ")), s.megatron_default);
}

/// Rule violated by the words of a no-op flag; "" if valid.
std::string form_violation(const Setting& s, const Words& words) {
  if (s.kind == Kind::kList) {
    constexpr std::size_t kShown = 4;
    const auto known = [&](const std::string& word) {
      return std::find(s.choices.begin(), s.choices.end(), word) != s.choices.end();
    };
    std::istringstream all(fmt::format("{}", fmt::join(words, " ")));  // one word may contain several
    bool good = true;
    for (std::string word; all >> word;) good = good && (s.choices.empty() || known(word));
    if (good) return "";
    return fmt::format(
        "must be among {}{}",
        fmt::join(s.choices.begin(),
                  s.choices.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, s.choices.size())), ", "),
        s.choices.size() > kShown ? ", ..." : "");
  }
  if (words.size() != 1) return "must be one value";
  if (!s.choices.empty() && std::find(s.choices.begin(), s.choices.end(), words[0]) == s.choices.end())
    return fmt::format("must be {}", fmt::join(s.choices, " or "));
  if (asks_for_default(s, words)) return "";
  std::int64_t integer = 0;
  double number = 0;
  if (s.kind == Kind::kInteger && !read_number(words[0], integer)) return "must be an integer";
  if (s.kind == Kind::kNumber && !read_number(words[0], number)) return "must be a number";
  return "";
}

/// Error for a value that requests an unsupported feature; "" if there is none.
std::string unsupported_value_error(const Setting& s, const Given& g) {
  for (const std::string& word : g.words) {
    const auto found = s.unsupported_values.find(word);
    if (found == s.unsupported_values.end()) continue;
    const std::string instead = s.choices.empty() || s.kind == Kind::kList
                                    ? ""
                                    : fmt::format(", or write {}", fmt::join(s.choices, " or "));
    return fmt::format("{}: this version has no {}; got {}; remove it{}", g.spelled, found->second,
                       shown(g.words), instead);
  }
  return "";
}

void apply_unimplemented(const Setting& s, const Given& g, GivenSet& given) {
  if (s.cls == Class::kUnsupported) {
    if (asks_for_default(s, g.words)) return;
    given.faults.push_back(fmt::format("{}: {}; got {}; {}", g.spelled, s.help, shown(g.words), s.fix));
    return;
  }
  if (std::string error = unsupported_value_error(s, g); !error.empty())
    return given.faults.push_back(std::move(error));
  const std::string violated = form_violation(s, g.words);
  if (!violated.empty()) {
    given.faults.push_back(
        fmt::format("{} {}; got {}; remove it: {}", g.spelled, violated, shown(g.words), s.help));
  } else if (!asks_for_default(s, g.words)) {
    given.no_op_flags.push_back(s.key);
  } else if (g.where == kTyped && g.words == Words{"false"} && !s.no_effect) {
    given.notes.push_back(fmt::format("{}: is ignored; {} is always on here: {}", g.spelled, s.flag, s.help));
  }
}

/// Value requested for a key, by a shorthand or directly.
struct Request {
  std::string word;
  Given by;
};
using Requests = std::map<std::string, std::vector<Request>>;

/// Shorthands that are turned on or off, grouped by the key they stand for.
Requests requests_of(const GivenSet& given, bool on) {
  Requests requests;
  for (const Setting& s : schema()) {
    const Given* g = s.shorthand_key.empty() ? nullptr : given.find(s.key);
    if (g != nullptr && g->words == Words{on ? "true" : "false"})
      requests[s.shorthand_key].push_back({s.shorthand_word, *g});
  }
  return requests;
}

/// Applies a negated shorthand: cancels its value of `key` if a lower level set it. True if the key then has
/// its default because of the shorthand.
bool cancel(const std::string& key, const Request& request, GivenSet& given) {
  const Given* own = given.find(key);
  if (own == nullptr) return true;
  if (own->words != Words{request.word} || own->level > request.by.level) return false;
  if (own->level == request.by.level) {
    given.fault(setting(key),
                fmt::format("{} and {} conflict on --{}; got not {} and {}; remove one", request.by.spelled,
                            own->spelled, setting(key).flag.substr(2), request.word, request.word));
    return false;
  }
  given.by_key.erase(key);
  return true;
}

/// Replaces shorthands (--swiglu, --bf16, ...) by the settings they stand for. Returns the source of each key
/// that a negated shorthand reset to its default.
std::map<std::string, std::string> expand_shorthands(GivenSet& given) {
  Requests asked = requests_of(given, true);
  for (auto& [key, requests] : asked) {
    if (const Given* own = given.find(key))
      requests.push_back({own->words.empty() ? "" : own->words[0], *own});
    int top = 0;
    for (const Request& request : requests) top = std::max(top, request.by.level);
    std::erase_if(requests, [&](const Request& request) { return request.by.level < top; });
    for (const auto& [word, g] : requests) {
      if (word == requests[0].word) continue;
      given.fault(setting(key),
                  fmt::format("{} and {} conflict on --{}; got {} and {}; remove one", requests[0].by.spelled,
                              g.spelled, setting(key).flag.substr(2), requests[0].word, word));
    }
    Given winner = requests[0].by;
    winner.words = {requests[0].word};
    given.by_key.insert_or_assign(key, winner);
  }
  std::map<std::string, std::string> back_to_default;
  for (const auto& [key, requests] : requests_of(given, false)) {
    for (const Request& request : requests)
      if (cancel(key, request, given)) back_to_default.emplace(key, request.by.where);
  }
  return back_to_default;
}

bool is_on(const GivenSet& given, const std::string& key, bool default_value) {
  const Given* g = given.find(key);
  return g == nullptr ? default_value : g->words == Words{"true"};
}

/// Megatron's plain GELU is the tanh approximation if biases and bias-GELU fusion are on, and in Transformer
/// Engine's activation functions, including the gated ones.
void choose_gelu(const GivenSet& given, Run& run) {
  const bool engine =
      is_on(given, "use_te_activation_func", false) || is_on(given, "use_transformer_engine_op_fuser", false);
  Activation& activation = run.model.activation;
  if (const Given* own = given.find("activation")) {
    if (!engine || own->where == kTyped) return;
    if (activation == Activation::kGeluErf) activation = Activation::kGeluTanh;
    if (activation == Activation::kGeglu) activation = Activation::kGegluTanh;
    return;
  }
  const bool fused = is_on(given, "bias_gelu_fusion", true) && run.model.add_bias_linear;
  activation = fused || engine ? Activation::kGeluTanh : Activation::kGeluErf;
}

/// --num-query-groups takes effect only with --group-query-attention, where it defaults to 1.
void apply_query_groups(GivenSet& given, Run& run) {
  Model& m = run.model;
  const Given* groups = given.find("num_query_groups");
  const Given* grouped = given.find("group_query_attention");
  if (is_on(given, "group_query_attention", false)) {
    if (m.num_query_groups == 0) m.num_query_groups = 1;
    if (groups == nullptr) given.put("num_query_groups", *grouped);
  } else if (m.num_query_groups != 0 && m.num_query_groups != m.num_attention_heads &&
             !given.invalid_keys.contains("num_attention_heads")) {
    given.notes.push_back(fmt::format(
        "{}: has no effect without --group-query-attention; got {} groups; each of the {} heads has "
        "its own keys and values",
        groups->spelled, m.num_query_groups, m.num_attention_heads));
    m.num_query_groups = 0;
  }
}

/// Rejects 0 on the command line where 0 means unset. Dumped files contain such zeros.
void reject_typed_zeros(GivenSet& given) {
  for (const char* key :
       {"global_batch_size", "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"}) {
    const Given* g = given.find(key);
    std::int64_t value = -1;
    if (g == nullptr || g->where != kTyped || g->words.size() != 1 || !read_number(g->words[0], value))
      continue;
    if (value != 0) continue;
    const Setting& s = setting(key);
    given.fault(s, fmt::format("{} must be above 0; got 0; remove it: {}", g->spelled, s.help));
  }
}

/// Default tokenizer of Megatron's entry points if only vocabulary files are given: GPT2BPETokenizer in
/// pretrain_gpt.py, BertWordPieceLowerCase in pretrain_bert.py and pretrain_t5.py.
void choose_tokenizer(GivenSet& given, Run& run) {
  const Given* file = given.find("vocab_file");
  if (run.data.vocab_file.empty() || given.find("tokenizer_type") != nullptr) return;
  run.data.tokenizer_type = run.model_type == "gpt" ? "GPT2BPETokenizer" : "BertWordPieceLowerCase";
  run.given["tokenizer_type"] = file->where;
  given.notes.push_back(
      fmt::format("{}: read by {}, Megatron's default for {} (change it with --tokenizer-type)",
                  file->spelled, run.data.tokenizer_type, run.model_type));
}

void translate(GivenSet& given, Run& run) {
  choose_gelu(given, run);
  apply_query_groups(given, run);
  expand_moe_layer_recompute(given, run);
  choose_tokenizer(given, run);
  reject_typed_zeros(given);
  const Given* positions = given.find("add_position_embedding");
  if (positions != nullptr && positions->words == Words{"false"} &&
      run.model.position_embedding == PositionEmbedding::kLearnedAbsolute) {
    given.faults.push_back(fmt::format(
        "{} must not be combined with learned positions; got --position-embedding-type learned_absolute; "
        "write --position-embedding-type none or rope",
        positions->spelled));
  }
}

void apply_one(const Setting& s, const Given& g, GivenSet& given, Run& run) {
  if (s.kind == Kind::kSwitch && g.words != Words{"true"} && g.words != Words{"false"})
    return given.fault(
        s, fmt::format("{} must be true or false; got {}; write one of them", g.spelled, shown(g.words)));
  if (s.cls != Class::kImplemented) return apply_unimplemented(s, g, given);
  run.given[s.key] = g.where;
  if (s.set == nullptr) return;
  if (std::string error = unsupported_value_error(s, g); !error.empty())
    return given.fault(s, std::move(error));
  const std::string violated = assign(run, s, g.words);
  if (!violated.empty())
    given.fault(s, fmt::format("{} {}; got {}; see `colonnade help {}`", g.spelled, violated, shown(g.words),
                               s.flag));
}

void apply(GivenSet& given, Run& run) {
  const Setting& model = setting("model");
  if (const Given* g = given.find(model.key)) {
    Run scratch;
    if (!assign(scratch, model, g->words).empty()) {
      given.faults.clear();  // about flags that other models may have
      given.is_incomplete = true;
      return apply_one(model, *g, given, run);
    }
  }
  const auto back_to_default = expand_shorthands(given);
  for (const Setting& s : schema()) {
    if (const Given* g = given.find(s.key)) apply_one(s, *g, given, run);
  }
  for (const auto& [key, where] : back_to_default) run.given[key] = where;
  translate(given, run);
  if (const Given* groups = given.find("num_query_groups")) run.given["num_query_groups"] = groups->where;
  for (const std::string& key : given.invalid_keys) run.given.try_emplace(key, kTyped);
  run.invalid_keys = given.invalid_keys;
}

}  // namespace

void GivenSet::put(const std::string& key, Given given) {
  const auto found = by_key.find(key);
  if (found == by_key.end() || found->second.level <= given.level)
    by_key.insert_or_assign(key, std::move(given));
}

void GivenSet::fault(const Setting& setting, std::string text) {
  faults.push_back(std::move(text));
  invalid_keys.insert(setting.shorthand_key.empty() ? setting.key : setting.shorthand_key);
}

const Given* GivenSet::find(const std::string& key) const {
  const auto found = by_key.find(key);
  return found == by_key.end() ? nullptr : &found->second;
}

std::string unknown(const std::string& thing, std::string_view name, const std::vector<std::string>& own,
                    Use use) {
  const std::string near = nearest(name, own, use);
  const std::string fix =
      near.empty() ? "`--help-all` lists every setting" : fmt::format("did you mean {}?", near);
  return fmt::format("{} must be a known setting; got {}; {}", thing, name, fix);
}

bool is_from_command_line(const Run& run, const std::string& key) {
  const auto found = run.given.find(key);
  return found != run.given.end() && found->second == kTyped;
}

GivenSpelling::GivenSpelling(const Run& run, const Setting& setting)
    : flag(setting.flag),
      inverted(setting.kind == Kind::kSwitch && is_from_command_line(run, setting.key) &&
               text_of(run, setting) == "false") {
  if (inverted) flag = setting.off_flag();
}

std::string GivenSpelling::value(const std::string& text) const {
  if (!inverted) return text;
  return text == "false" ? "true" : "false";
}

std::vector<std::string> flags_of(const std::vector<VerbFlag>& extras) {
  std::vector<std::string> flags;
  for (const VerbFlag& extra : extras) flags.push_back(extra.flag);
  return flags;
}

Parsed parse_all(const std::vector<std::string>& arguments, const std::vector<VerbFlag>& extras, Use use) {
  Parsed parsed;
  GivenSet given;
  CommandLine(arguments, extras, use, parsed, given).read();
  apply(given, parsed.run);
  parsed.faults = std::move(given.faults);
  parsed.is_incomplete = given.is_incomplete;
  parsed.run.no_op_flags = std::move(given.no_op_flags);
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
