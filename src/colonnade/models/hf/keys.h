// Typed, range-checked access to config.json with defaults and detection of unread keys. Private to
// models/hf.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace colonnade::models::hf {

using Settings = std::map<std::string, std::string>;

/// All faults of one config.json, thrown together.
class Faults {
 public:
  explicit Faults(std::string source) : source_(std::move(source)) {}
  void add(std::string_view rule, std::string_view got, std::string_view fix = kConvert);
  /// Throws ConfigError with one fault per line, unless there are none.
  void require_none() const;

  static constexpr std::string_view kConvert = "convert the model or choose another";

 private:
  std::string source_;
  std::vector<std::string> lines_;
};

/// Inclusive range of a number.
struct Bounds {
  double least = 0;
  double most = std::numeric_limits<double>::max();
};

/// Upper limits that keep a corrupt file from requesting huge lists.
inline constexpr std::int64_t kMostLayers = 10'000;
inline constexpr std::int64_t kMostExperts = 100'000;
inline constexpr std::int64_t kMostWidth = 1'000'000'000;

/// A key that has no effect at its neutral value.
struct Neutral {
  std::string_view key;
  std::string_view value;  ///< as JSON
};

/// One JSON object. Every getter marks its key as known. For a value of another type or out of range it adds
/// a fault and returns the fallback; null is a fault unless the getter's comment allows it.
class Keys {
 public:
  /// `where` precedes keys in messages: "" at the top, "rope_scaling." in that block.
  Keys(nlohmann::json object, std::string where, Faults& faults);

  /// `other` is an alias of `key`, as in a configuration class's attribute_map. Conflicting values are a
  /// fault.
  void alias(const char* key, const char* other);

  [[nodiscard]] bool has(const char* key) const { return object_.contains(key); }
  std::int64_t integer(const char* key, std::int64_t fallback, std::int64_t least = 1,
                       std::int64_t most = kMostWidth);
  /// Like integer(); nothing for null.
  std::optional<std::int64_t> integer_or_null(const char* key, std::optional<std::int64_t> fallback,
                                              std::int64_t least = 1);
  double real(const char* key, double fallback, Bounds bounds = {});
  std::optional<double> real_or_null(const char* key, std::optional<double> fallback, Bounds bounds = {});
  bool flag(const char* key, bool fallback);
  std::string word(const char* key, const char* fallback);
  /// The unchecked value, null if missing.
  nlohmann::json any(const char* key);
  /// A JSON object, empty if missing or null.
  nlohmann::json object(const char* key);

  /// A fault unless the key is missing, null or one of `values`, the only ones that the model supports.
  void only(const char* key, std::initializer_list<nlohmann::json> values);
  void only(std::span<const Neutral> keys);
  void ignore(std::span<const std::string_view> keys);

  /// Reads `value` for `key` from now on.
  void replace(const char* key, nlohmann::json value) { object_[key] = std::move(value); }

  void fault(std::string_view key, std::string_view rule, const nlohmann::json& got,
             std::string_view fix = Faults::kConvert);
  /// A fault for every key that is neither known nor null.
  void reject_unknown();

 private:
  /// The value of `key`, null if missing; marks it as known.
  const nlohmann::json* find(const char* key);

  nlohmann::json object_;
  std::string where_;
  Faults& faults_;
  std::set<std::string, std::less<>> known_;
};

/// A value for messages: shortened JSON, strings without quotes.
std::string shown(const nlohmann::json& value);

inline std::string text(bool value) { return value ? "true" : "false"; }
inline std::string text(std::int64_t value) { return std::to_string(value); }
inline std::string text(double value) { return fmt::format("{}", value); }

}  // namespace colonnade::models::hf
