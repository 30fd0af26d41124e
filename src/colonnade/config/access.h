// How a setting reaches its field of config::Run: text to value and back, by the type of the field.
// Used by the settings/ tables only.
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

/// The words of an enum, in the order of its enumerators.
template <typename E>
const std::vector<std::string>& enum_words();
template <>
const std::vector<std::string>& enum_words<PositionEmbedding>();
template <>
const std::vector<std::string>& enum_words<RopeType>();
template <>
const std::vector<std::string>& enum_words<Normalization>();
template <>
const std::vector<std::string>& enum_words<Activation>();
template <>
const std::vector<std::string>& enum_words<SoftmaxType>();
template <>
const std::vector<std::string>& enum_words<RouterScore>();
template <>
const std::vector<std::string>& enum_words<TokenDispatcher>();
template <>
const std::vector<std::string>& enum_words<TokenDropPolicy>();
template <>
const std::vector<std::string>& enum_words<ParamsDtype>();
template <>
const std::vector<std::string>& enum_words<OptimizerKind>();
template <>
const std::vector<std::string>& enum_words<LrDecayStyle>();
template <>
const std::vector<std::string>& enum_words<WsdDecayStyle>();
template <>
const std::vector<std::string>& enum_words<WeightDecayIncrStyle>();

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

/// Text to number; false unless the whole text is one that T can hold.
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
      const auto& names = enum_words<T>();
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
    return {enum_words<T>().at(static_cast<std::size_t>(value))};
  else
    return {fmt::format("{}", value)};
}

/// The field that the members of Path lead to, one inside the other.
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
    std::string broken = read(value, words);
    if (broken.empty()) field = std::move(value);
    return broken;
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

/// A row of the table while it is being declared.
class Row {
 public:
  explicit Row(Setting& setting) : s_(setting) {}
  Row& key(std::string text) { return s_.key = std::move(text), *this; }
  Row& alias(std::string flag) { return s_.aliases.push_back(std::move(flag)), *this; }
  Row& off(std::string flag) { return s_.off_aliases.push_back(std::move(flag)), *this; }
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
  /// Own reading and printing, for a field whose flag has another form.
  Row& how(Kind kind, decltype(Setting::set) set, decltype(Setting::get) get) {
    s_.kind = kind;
    s_.set = set;
    s_.get = get;
    return *this;
  }
  /// A value that Megatron has for a feature that is not part of this version.
  Row& missing(std::vector<std::string> words, const std::string& feature) {
    for (std::string& word : words) s_.missing.emplace(std::move(word), feature);
    return *this;
  }
  /// Where a flag that is always so does something else, or nothing.
  Row& idle(bool (*is_so)(const Run&), std::string what) {
    return s_.idle.push_back({is_so, std::move(what)}), *this;
  }
  Row& common() { return s_.common = true, *this; }
  Row& own() { return s_.own = true, *this; }

 private:
  Setting& s_;
};

/// A flag of Megatron's that is rejected or changes no result.
struct Flag {
  const char* names;          ///< spellings, separated by a space
  const char* type = "on";    ///< on, off, integer, number, text, list
  const char* value = "";     ///< Megatron's default
  const char* key = "";       ///< destination, where it is not the name
  const char* accepted = "";  ///< values of a flag without effect, separated by a space; "": any
};

/// Collects the rows of all tables.
class Table {
 public:
  void group(std::string name) { group_ = std::move(name); }

  /// A setting behind the field that Path leads to: area and member, or area, part and member.
  template <auto... Path>
  Row add(std::string flag, std::string help) {
    using T = std::remove_cvref_t<decltype(field_of<Path...>(std::declval<Run&>()))>;
    Setting& s = append(std::move(flag), std::move(help));
    s.kind = kind_of<T>();
    s.nullable = IsOptional<T>::value;
    if constexpr (std::is_enum_v<T>) s.choices = enum_words<T>();
    if constexpr (IsOptionalEnum<T>::value) s.choices = enum_words<typename T::value_type>();
    s.set = &set_field<Path...>;
    s.get = &get_field<Path...>;
    return Row(s);
  }
  /// A setting of the run itself, or one that only config::parse knows.
  Row special(std::string flag, std::string help) { return Row(append(std::move(flag), std::move(help))); }
  /// A switch that config::parse translates into other settings.
  Row shorthand(std::string flag, std::string help) { return Row(append(std::move(flag), std::move(help))); }

  /// A flag that is true here whatever is asked. `accepted`: the values that are, empty for any.
  Row always(const Flag& flag, std::string why, std::vector<std::string> accepted = {});
  /// Flags that change no result, and what happens here instead, which their help and the run's note say.
  void no_effect(const std::string& instead, std::span<const Flag> flags);
  /// Flags of something that is not part of this version, with one way out.
  void refuse(const std::string& what, const std::string& way_out, std::span<const Flag> flags);

  std::vector<Setting> rows;

 private:
  Setting& append(std::string flag, std::string help);
  Setting& append(const Flag& flag, Class cls);
  std::string group_;
};

// The tables, one per file of settings/.
void add_model(Table& table);
void add_latent(Table& table);
void add_moe(Table& table);
void add_recompute(Table& table);
void add_parallel(Table& table);
void add_training(Table& table);
void add_data(Table& table);
void add_always(Table& table);
void add_no_effect(Table& table);
void add_refused_model(Table& table);
void add_refused_parallel(Table& table);
void add_refused_training(Table& table);
void add_refused_other(Table& table);

}  // namespace colonnade::config
