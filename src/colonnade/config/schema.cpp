// Assembles the table and indexes it by spelling.
#include "colonnade/config/schema.h"

#include <algorithm>
#include <unordered_map>

#include "colonnade/base/error.h"
#include "colonnade/config/access.h"
#include "colonnade/config/optimizers.h"
#include "colonnade/config/spelling.h"

namespace colonnade::config {

namespace {

using Names = std::vector<std::string>;

/// Splits a text at any of the characters in `between`.
Names split_words(std::string_view text, std::string_view between) {
  Names words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(between), text.size());
    if (end > 0) words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

std::vector<Setting> all_tables() {
  Table table;
  add_model(table);
  add_latent(table);
  add_moe(table);
  add_recompute(table);
  add_parallel(table);
  add_training(table);
  add_data(table);
  add_logging(table);
  add_no_op(table);
  add_no_effect(table);
  add_unsupported_model(table);
  add_unsupported_parallel(table);
  add_unsupported_training(table);
  add_unsupported_other(table);
  for (Setting& s : table.rows) {
    const bool spelled_off =
        s.kind == Kind::kSwitch && s.flag.starts_with("--no-") && folded(s.flag) != s.key;
    if (spelled_off && s.off_aliases.empty()) s.off_aliases.push_back(s.flag);
  }
  return std::move(table.rows);
}

std::unordered_map<std::string, Match> index_of(const std::vector<Setting>& rows) {
  std::unordered_map<std::string, Match> index;
  for (const Setting& s : rows) {
    for (const std::string& flag : s.off_aliases) index.insert_or_assign(folded(flag), Match{&s, true});
    index.try_emplace(s.key, Match{&s, false});
    index.try_emplace(folded(s.flag), Match{&s, false});
    for (const std::string& flag : s.aliases) index.try_emplace(folded(flag), Match{&s, false});
  }
  for (const Setting& s : rows) {
    if (s.kind == Kind::kSwitch) index.try_emplace(folded(s.off_flag()), Match{&s, true});
    if (s.kind == Kind::kSwitch && !s.key.starts_with("no_"))
      index.try_emplace("no_" + s.key, Match{&s, true});
  }
  return index;
}

std::string range_rule(const Setting& s, const Words& words) {
  double number = 0;
  if ((!s.min && !s.max) || words.size() != 1 || !read_number(words[0], number)) return "";
  if ((!s.min || number >= *s.min) && (!s.max || number <= *s.max)) return "";
  if (!s.max) return fmt::format("must be at least {}", *s.min);
  return fmt::format("must lie between {} and {}", *s.min, *s.max);
}

}  // namespace

template <>
const Names& enum_names<PositionEmbedding>() {
  static const Names names{"learned_absolute", "rope", "yarn", "relative", "none"};
  return names;
}
template <>
const Names& enum_names<RopeType>() {
  static const Names names{"rope", "yarn"};
  return names;
}
template <>
const Names& enum_names<Normalization>() {
  static const Names names{"LayerNorm", "RMSNorm"};
  return names;
}
template <>
const Names& enum_names<Activation>() {
  static const Names names{"gelu",  "gelu-tanh",  "squared-relu", "swiglu",
                           "geglu", "geglu-tanh", "quick-geglu",  "relu"};
  return names;
}
template <>
const Names& enum_names<SoftmaxType>() {
  static const Names names{"vanilla", "off-by-one", "learnable"};
  return names;
}
template <>
const Names& enum_names<RouterScore>() {
  static const Names names{"softmax", "sigmoid", "sqrtsoftplus"};
  return names;
}
template <>
const Names& enum_names<TokenDispatcher>() {
  static const Names names{"allgather", "alltoall"};
  return names;
}
template <>
const Names& enum_names<TokenDropPolicy>() {
  static const Names names{"probs", "position"};
  return names;
}
template <>
const Names& enum_names<Dtype>() {
  static const Names names{std::string(name(Dtype::kFloat32)), std::string(name(Dtype::kBfloat16)),
                           std::string(name(Dtype::kFloat16)), std::string(name(Dtype::kFloat8))};
  return names;
}
template <>
const Names& enum_names<OptimizerKind>() {
  static const Names names = [] {
    Names all;
    for (const OptimizerTraits& traits : optimizers()) all.emplace_back(traits.name);
    return all;
  }();
  return names;
}
template <>
const Names& enum_names<MuonScale>() {
  static const Names names{"spectral", "unit_rms_norm", "shape_scaling"};
  return names;
}
template <>
const Names& enum_names<MuonCoefficients>() {
  static const Names names{"simple", "quintic", "polar_express", "cans", "aol", "deepseekv4", "cubic5"};
  return names;
}
template <>
const Names& enum_names<MuonTpMode>() {
  static const Names names{"blockwise", "duplicated", "distributed"};
  return names;
}
template <>
const Names& enum_names<MatmulPrecision>() {
  static const Names names{"low", "medium", "high"};
  return names;
}
template <>
const Names& enum_names<LrDecayStyle>() {
  static const Names names{"constant", "linear", "cosine", "inverse-square-root", "WSD"};
  return names;
}
template <>
const Names& enum_names<WsdDecayStyle>() {
  static const Names names{"exponential", "linear", "cosine", "minus_sqrt"};
  return names;
}
template <>
const Names& enum_names<WeightDecayIncrStyle>() {
  static const Names names{"constant", "linear", "cosine"};
  return names;
}

std::string_view name(Kind kind) {
  switch (kind) {
    case Kind::kSwitch:
      return "switch";
    case Kind::kInteger:
      return "integer";
    case Kind::kNumber:
      return "number";
    case Kind::kChoice:
      return "choice";
    case Kind::kList:
      return "list";
    case Kind::kText:
      break;
  }
  return "text";
}

std::string Setting::off_flag() const {
  if (!off_aliases.empty()) return off_aliases.front();
  return flag.starts_with("--no-") ? "--" + flag.substr(5) : "--no-" + flag.substr(2);
}

std::string Setting::default_text() const {
  if (cls == Class::kImplemented && get != nullptr) return text_of(Run{}, *this);
  if (cls == Class::kImplemented && kind != Kind::kSwitch) return "unset";
  if (cls == Class::kImplemented) return !off_aliases.empty() && off_aliases[0] == flag ? "true" : "false";
  return megatron_default.empty() ? "unset" : megatron_default;
}

Setting& Table::append(std::string flag, std::string help) {
  Setting& s = rows.emplace_back();
  s.key = folded(flag);
  s.flag = std::move(flag);
  s.group = group_;
  s.defines_model = defines_model_;
  s.help = std::move(help);
  return s;
}

Setting& Table::append(const Flag& flag, Class cls) {
  const Names names = split_words(flag.names, " ");
  const std::string_view type = flag.type;
  Setting& s = append(names[0], "");
  s.cls = cls;
  if (*flag.key != '\0') s.key = flag.key;
  s.megatron_default = flag.value;
  s.kind = type == "integer"  ? Kind::kInteger
           : type == "number" ? Kind::kNumber
           : type == "text"   ? Kind::kText
           : type == "list"   ? Kind::kList
                              : Kind::kSwitch;
  if (s.kind == Kind::kSwitch) s.megatron_default = type == "off" ? "true" : "false";
  if (type == "off")
    s.off_aliases = names;
  else
    s.aliases.assign(names.begin() + 1, names.end());
  return s;
}

Row Table::no_op(const Flag& flag, std::string why, std::vector<std::string> accepted) {
  Setting& s = append(flag, Class::kNoOp);
  s.help = std::move(why);
  s.choices = std::move(accepted);
  return Row(s);
}

void Table::no_effect(const std::string& instead, std::span<const Flag> flags) {
  for (const Flag& flag : flags) {
    no_op(flag, instead, split_words(flag.accepted, " "));
    rows.back().no_effect = true;
  }
}

void Table::unsupported(const std::string& feature, const std::string& fix, std::span<const Flag> flags) {
  group(feature);
  for (const Flag& flag : flags) {
    Setting& s = append(flag, Class::kUnsupported);
    s.help = "this version has no " + feature;
    s.fix = fix;
  }
}

const std::vector<Setting>& schema() {
  static const std::vector<Setting> rows = all_tables();
  return rows;
}

std::optional<Match> find(std::string_view spelling) {
  static const std::unordered_map<std::string, Match> index = index_of(schema());
  const auto found = index.find(folded(spelling));
  if (found == index.end()) return std::nullopt;
  return found->second;
}

const Setting& setting(std::string_view key) {
  const auto found = find(key);
  COL_CHECK(found && found->setting->key == key, "config: every key must be in the schema; got {}", key);
  return *found->setting;
}

std::string violated_rule(const Run& run, const Setting& s, const Words& words) {
  COL_CHECK(s.set != nullptr,
            "config: {} must have a field; got a setting without one; set the setting it stands for", s.flag);
  const bool fixed_choice = s.kind == Kind::kChoice && words.size() == 1;
  if (fixed_choice && std::find(s.choices.begin(), s.choices.end(), words[0]) == s.choices.end()) {
    Names shown = s.choices;
    std::erase(shown, "");
    return fmt::format("must be one of {}", fmt::join(shown, ", "));
  }
  Run scratch = run;
  std::string violated = s.set(scratch, words);
  return violated.empty() ? range_rule(s, words) : violated;
}

std::string assign(Run& run, const Setting& s, const Words& words) {
  std::string violated = violated_rule(run, s, words);
  if (violated.empty()) s.set(run, words);
  return violated;
}

std::string text_of(const Run& run, const Setting& s) {
  const auto words = s.get == nullptr ? std::nullopt : s.get(run);
  return words ? fmt::format("{}", fmt::join(*words, " ")) : "unset";
}

}  // namespace colonnade::config
