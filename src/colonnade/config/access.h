// Conversion between the text of a setting and its field of config::Run, by the type of the field. Used by
// the settings/ tables only.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "colonnade/config/schema.h"

namespace colonnade::config {

/// Names of an enum's values, in the order of its enumerators.
template <typename E>
const std::vector<std::string>& enum_names();
template <>
const std::vector<std::string>& enum_names<PositionEmbedding>();
template <>
const std::vector<std::string>& enum_names<RopeType>();
template <>
const std::vector<std::string>& enum_names<Normalization>();
template <>
const std::vector<std::string>& enum_names<Activation>();
template <>
const std::vector<std::string>& enum_names<SoftmaxType>();
template <>
const std::vector<std::string>& enum_names<RouterScore>();
template <>
const std::vector<std::string>& enum_names<TokenDispatcher>();
template <>
const std::vector<std::string>& enum_names<TokenDropPolicy>();
template <>
const std::vector<std::string>& enum_names<Dtype>();
template <>
const std::vector<std::string>& enum_names<OptimizerKind>();
template <>
const std::vector<std::string>& enum_names<MuonScale>();
template <>
const std::vector<std::string>& enum_names<MuonCoefficients>();
template <>
const std::vector<std::string>& enum_names<MuonTpMode>();
template <>
const std::vector<std::string>& enum_names<MatmulPrecision>();
template <>
const std::vector<std::string>& enum_names<LrDecayStyle>();
template <>
const std::vector<std::string>& enum_names<WsdDecayStyle>();
template <>
const std::vector<std::string>& enum_names<WeightDecayIncrStyle>();

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <typename T>
struct IsOptionalEnum : std::false_type {};
template <typename T>
struct IsOptionalEnum<std::optional<T>> : std::is_enum<T> {};

template <typename T>
constexpr Kind kind_of() {
  if constexpr (IsOptional<T>::value) return kind_of<typename T::value_type>();
  if constexpr (std::is_same_v<T, bool>) return Kind::kSwitch;
  if constexpr (std::is_enum_v<T>) return Kind::kChoice;
  if constexpr (std::is_integral_v<T>) return Kind::kInteger;
  if constexpr (std::is_floating_point_v<T>) return Kind::kNumber;
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return Kind::kList;
  return Kind::kText;
}

/// Parses a number; false unless the whole text is a value of T.
template <typename T>
bool read_number(std::string_view text, T& out) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc{} || end != text.data() + text.size()) return false;
  if constexpr (std::is_floating_point_v<T>) return std::isfinite(out);
  return true;
}

template <typename T>
std::string read(T& out, const Words& words) {
  if constexpr (std::is_same_v<T, Words>) {
    out = words;
    return "";
  } else {
    if (words.size() != 1) return "must be one value";
    const std::string& word = words[0];
    if constexpr (std::is_same_v<T, std::string>) {
      out = word;
    } else if constexpr (std::is_same_v<T, bool>) {
      if (word != "true" && word != "false") return "must be true or false";
      out = word == "true";
    } else if constexpr (std::is_enum_v<T>) {
      const auto& names = enum_names<T>();
      std::size_t i = 0;
      while (i < names.size() && names[i] != word) ++i;
      if (i == names.size()) return fmt::format("must be one of {}", fmt::join(names, ", "));
      out = static_cast<T>(i);
    } else if (!read_number(word, out)) {
      return std::is_floating_point_v<T> ? "must be a number" : "must be an integer";
    }
    return "";
  }
}

template <typename T>
Words print(const T& value) {
  if constexpr (std::is_same_v<T, Words>)
    return value;
  else if constexpr (std::is_enum_v<T>)
    return {enum_names<T>().at(static_cast<std::size_t>(value))};
  else
    return {fmt::format("{}", value)};
}

/// Field at the nested member path Path.
template <auto... Path>
auto& field_of(Run& run) {
  return (run.*....*Path);
}

template <auto... Path>
std::string set_field(Run& run, const Words& words) {
  auto& field = field_of<Path...>(run);
  using T = std::remove_cvref_t<decltype(field)>;
  if constexpr (IsOptional<T>::value) {
    if (words.empty()) return field.reset(), "";
    typename T::value_type value{};
    std::string violated = read(value, words);
    if (violated.empty()) field = std::move(value);
    return violated;
  } else {
    return read(field, words);
  }
}

template <auto... Path>
std::optional<Words> get_field(const Run& run) {
  const auto& field = field_of<Path...>(const_cast<Run&>(run));
  using T = std::remove_cvref_t<decltype(field)>;
  if constexpr (IsOptional<T>::value) {
    if (!field) return std::nullopt;
    return print(*field);
  } else {
    return print(field);
  }
}

/// Builder of one table row.
class Row {
 public:
  explicit Row(Setting& setting) : s_(setting) {}
  Row& key(std::string text) { return s_.key = std::move(text), *this; }
  Row& alias(std::string flag) { return s_.aliases.push_back(std::move(flag)), *this; }
  Row& off_alias(std::string flag) { return s_.off_aliases.push_back(std::move(flag)), *this; }
  Row& unit(std::string text) { return s_.unit = std::move(text), *this; }
  Row& at_least(double low) { return s_.min = low, *this; }
  Row& range(double low, double high) { return s_.min = low, s_.max = high, *this; }
  Row& choices(std::vector<std::string> words) {
    return s_.kind = Kind::kChoice, s_.choices = std::move(words), *this;
  }
  Row& megatron_default(std::string text) { return s_.megatron_default = std::move(text), *this; }
  Row& shorthand(std::string key, std::string word) {
    s_.shorthand_key = std::move(key);
    s_.shorthand_word = std::move(word);
    return *this;
  }
  /// Custom parsing and printing, for a field whose flag has another form.
  Row& accessors(Kind kind, decltype(Setting::set) set, decltype(Setting::get) get) {
    s_.kind = kind;
    s_.set = set;
    s_.get = get;
    return *this;
  }
  /// Values that Megatron has for a feature that this version does not support.
  Row& unsupported(std::vector<std::string> words, const std::string& feature) {
    for (std::string& word : words) s_.unsupported_values.emplace(std::move(word), feature);
    return *this;
  }
  /// Text that replaces the help in the run's note for runs where `applies` holds. For accepted no-op flags.
  Row& note_if(bool (*applies)(const Run&), std::string text) {
    return s_.conditional_notes.push_back({applies, std::move(text)}), *this;
  }
  Row& training_only() { return s_.training_only = true, *this; }
  Row& common() { return s_.common = true, *this; }
  Row& colonnade_only() { return s_.colonnade_only = true, *this; }

 private:
  Setting& s_;
};

/// A Megatron flag that is not supported or has no effect.
struct Flag {
  const char* names;          ///< spellings, space-separated
  const char* type = "on";    ///< on, off, integer, number, text, list
  const char* value = "";     ///< Megatron's default
  const char* key = "";       ///< argparse destination if it differs from the name
  const char* accepted = "";  ///< accepted values of a no-op flag, space-separated; "": any
};

/// Collects the rows of all tables.
class Table {
 public:
  /// Begins a group; `defines_model`: Setting::defines_model of its rows.
  void group(std::string name, bool defines_model = false) {
    group_ = std::move(name);
    defines_model_ = defines_model;
  }
  void model_group(std::string name) { group(std::move(name), true); }

  /// A setting stored in the field at Path: area and member, or area, part and member.
  template <auto... Path>
  Row add(std::string flag, std::string help) {
    using T = std::remove_cvref_t<decltype(field_of<Path...>(std::declval<Run&>()))>;
    Setting& s = append(std::move(flag), std::move(help));
    s.kind = kind_of<T>();
    s.nullable = IsOptional<T>::value;
    if constexpr (std::is_enum_v<T>) s.choices = enum_names<T>();
    if constexpr (IsOptionalEnum<T>::value) s.choices = enum_names<typename T::value_type>();
    s.set = &set_field<Path...>;
    s.get = &get_field<Path...>;
    return Row(s);
  }
  /// A setting with custom accessors, or one that only config::parse handles.
  Row special(std::string flag, std::string help) { return Row(append(std::move(flag), std::move(help))); }
  /// A switch that config::parse expands into other settings.
  Row shorthand(std::string flag, std::string help) { return Row(append(std::move(flag), std::move(help))); }

  /// A no-op flag whose behavior is always on. `accepted`: accepted values, empty for any.
  Row no_op(const Flag& flag, std::string why, std::vector<std::string> accepted = {});
  /// No-op flags that change no result. `instead` describes the behavior here, in their help and the run's
  /// note.
  void no_effect(const std::string& instead, std::span<const Flag> flags);
  /// Flags of a feature that this version does not support, with a common fix.
  void unsupported(const std::string& feature, const std::string& fix, std::span<const Flag> flags);

  std::vector<Setting> rows;

 private:
  Setting& append(std::string flag, std::string help);
  Setting& append(const Flag& flag, Class cls);
  std::string group_;
  bool defines_model_ = false;
};

struct GivenSet;

/// --moe-layer-recompute: Megatron's old name of `--recompute-granularity selective` with module moe.
void expand_moe_layer_recompute(GivenSet& given, Run& run);

// The tables, one per file of settings/.
void add_model(Table& table);
void add_latent(Table& table);
void add_moe(Table& table);
void add_recompute(Table& table);
void add_parallel(Table& table);
void add_training(Table& table);
void add_data(Table& table);
void add_logging(Table& table);
void add_no_op(Table& table);
void add_no_effect(Table& table);
void add_unsupported_model(Table& table);
void add_unsupported_parallel(Table& table);
void add_unsupported_training(Table& table);
void add_unsupported_other(Table& table);

// Flags of MoE layers that the tables of other groups include.
void add_parallel_moe(Table& table);   ///< parallel sizes
void add_recompute_moe(Table& table);  ///< shorthands of recomputation
void add_no_op_moe(Table& table);
void add_no_effect_moe(Table& table);
void add_unsupported_routing(Table& table);   ///< routing, weights and overlap
void add_unsupported_dispatch(Table& table);  ///< saved activations and dtypes of the token dispatch

}  // namespace colonnade::config
