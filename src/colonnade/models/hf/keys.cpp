// See keys.h.
#include "colonnade/models/hf/keys.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "colonnade/base/error.h"

namespace colonnade::models::hf {

using nlohmann::json;

namespace {

/// A value for messages: shortened JSON, strings with quotes.
std::string quoted(const json& value) {
  constexpr std::size_t kMost = 120;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

/// An integer, clamped to int64; nlohmann::json keeps those above 2^63 - 1 as unsigned.
std::optional<std::int64_t> as_integer(const json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
    return std::numeric_limits<std::int64_t>::max();
  return value.get<std::int64_t>();
}

}  // namespace

std::string shown(const json& value) {
  std::string text = quoted(value);
  if (value.is_string() && text.size() >= 2 && text.back() == '"') text = text.substr(1, text.size() - 2);
  return text;
}

void Faults::add(std::string_view rule, std::string_view got, std::string_view fix) {
  lines_.push_back(fmt::format("{}: {}; got {}; {}", source_, rule, got, fix));
}

void Faults::require_none() const {
  if (!lines_.empty()) throw ConfigError(fmt::format("{}", fmt::join(lines_, "\n")));
}

Keys::Keys(json object, std::string where, Faults& faults)
    : object_(std::move(object)), where_(std::move(where)), faults_(faults) {}

const json* Keys::find(const char* key) {
  known_.insert(key);
  const auto found = object_.find(key);
  return found == object_.end() ? nullptr : &*found;
}

void Keys::fault(std::string_view key, std::string_view rule, const json& got, std::string_view fix) {
  faults_.add(fmt::format("{}{} {}", where_, key, rule), shown(got), fix);
}

void Keys::alias(const char* key, const char* other) {
  const json* second = find(other);
  if (second == nullptr) return;
  if (object_.contains(key) && object_[key] != *second)
    faults_.add(fmt::format("{}{} and {} must agree: they are aliases", where_, key, other),
                fmt::format("{} and {}", shown(object_[key]), shown(*second)), "remove the wrong one");
  else
    object_[key] = json(*second);
}

std::int64_t Keys::integer(const char* key, std::int64_t fallback, std::int64_t least, std::int64_t most) {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  const auto number = as_integer(*value);
  if (number && *number >= least && *number <= most) return *number;
  faults_.add(fmt::format("{}{} must be an integer from {} to {}", where_, key, least, most), quoted(*value),
              "correct the file");
  return fallback;
}

std::optional<std::int64_t> Keys::integer_or_null(const char* key, std::optional<std::int64_t> fallback,
                                                  std::int64_t least) {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_null()) return std::nullopt;
  return integer(key, fallback.value_or(least), least);
}

double Keys::real(const char* key, double fallback, Bounds bounds) {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  const double number = value->is_number() ? value->get<double>() : 0;
  if (value->is_number() && number >= bounds.least && number <= bounds.most) return number;
  const std::string above = fmt::format("of at least {}", bounds.least);
  const bool bounded = bounds.most < std::numeric_limits<double>::max();
  faults_.add(fmt::format("{}{} must be a number {}", where_, key,
                          bounded ? fmt::format("from {} to {}", bounds.least, bounds.most) : above),
              quoted(*value), "correct the file");
  return fallback;
}

std::optional<double> Keys::real_or_null(const char* key, std::optional<double> fallback, Bounds bounds) {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_null()) return std::nullopt;
  return real(key, fallback.value_or(bounds.least), bounds);
}

bool Keys::flag(const char* key, bool fallback) {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  faults_.add(fmt::format("{}{} must be true or false", where_, key), quoted(*value), "correct the file");
  return fallback;
}

std::string Keys::word(const char* key, const char* fallback) {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_string()) return value->get<std::string>();
  faults_.add(fmt::format("{}{} must be a string", where_, key), quoted(*value), "correct the file");
  return fallback;
}

json Keys::any(const char* key) {
  const json* value = find(key);
  return value == nullptr ? json() : *value;
}

json Keys::object(const char* key) {
  json value = any(key);
  if (value.is_object()) return value;
  if (!value.is_null())
    faults_.add(fmt::format("{}{} must be a JSON object", where_, key), quoted(value), "correct the file");
  return json::object();
}

void Keys::only(const char* key, std::initializer_list<json> values) {
  const json* value = find(key);
  if (value == nullptr || value->is_null()) return;
  if (std::ranges::find(values, *value) != values.end()) return;
  std::vector<std::string> allowed;
  if (values.size() == 0) allowed.emplace_back("null");
  for (const json& one : values) allowed.push_back(shown(one));
  fault(key, fmt::format("must be {}", fmt::join(allowed, " or ")), *value);
}

void Keys::only(std::span<const Neutral> keys) {
  for (const Neutral& one : keys)
    if (!known_.contains(one.key)) only(std::string(one.key).c_str(), {json::parse(one.value)});
}

void Keys::ignore(std::span<const std::string_view> keys) {
  for (const std::string_view key : keys) known_.emplace(key);
}

void Keys::reject_unknown() {
  for (const auto& [key, value] : object_.items())
    if (!known_.contains(key) && !value.is_null())
      fault(key, "is unknown and may change the model", value,
            "remove the key if the model does not depend on it, else choose another model");
}

}  // namespace colonnade::models::hf
