// See json_view.h.
#include "colonnade/tokenizers/json_view.h"

#include <algorithm>
#include <array>

#include "colonnade/base/fault_text.h"

namespace colonnade::tokenizers {
namespace {

/// Bytes of the number at the start of a text, in the syntax of Python's json.loads; 0 if there is none.
std::size_t number_size(std::string_view text) {
  for (const std::string_view word : {"NaN", "Infinity", "-Infinity"})
    if (text.starts_with(word)) return word.size();
  std::size_t at = text.starts_with('-') ? 1 : 0;
  const auto digits = [&] {
    const std::size_t begin = at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') ++at;
    return at - begin;
  };
  const bool zero = at < text.size() && text[at] == '0';
  if (const std::size_t whole = digits(); whole == 0 || (zero && whole > 1)) return 0;
  if (at < text.size() && text[at] == '.' && (++at, digits() == 0)) return 0;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (digits() == 0) return 0;
  }
  return at;
}

/// The number, as a float if it is an integer that may not fit 64 bits.
std::string as_float_if_wide(std::string_view number) {
  constexpr std::size_t kDigits = 18;  // always fit 64 bits
  const bool integer = number.find_first_not_of("-0123456789") == std::string_view::npos;
  return std::string(number) + (integer && number.size() > kDigits ? ".0" : "");
}

/// The first bytes of a text, on one line.
std::string preview_of(const std::string& text) {
  std::string start = text.substr(0, 40);
  std::ranges::replace_if(
      start, [](unsigned char byte) { return byte < ' '; }, ' ');
  return start;
}

}  // namespace

std::string rewrite_numbers(std::string_view json,
                            const std::function<std::string(std::string_view)>& rewrite) {
  constexpr std::string_view kBetween = "[]{},:\" \t\r\n";
  std::string result;
  result.reserve(json.size());
  bool in_string = false;
  for (std::size_t at = 0; at < json.size();) {
    std::size_t size = 1;
    if (in_string && json[at] == '\\') {
      size = std::min<std::size_t>(2, json.size() - at);
    } else if (json[at] == '"') {
      in_string = !in_string;
    } else if (!in_string && kBetween.find(json[at]) == std::string_view::npos) {
      size = std::min(json.find_first_of(kBetween, at), json.size()) - at;
      if (number_size(json.substr(at)) == size) {
        result += rewrite(json.substr(at, size));
        at += size;
        continue;
      }
    }
    result += json.substr(at, size);
    at += size;
  }
  return result;
}

simdjson::dom::element parse_json(simdjson::dom::parser& parser, const std::string& path,
                                  const std::string& text) {
  if (text.starts_with("\xEF\xBB\xBF"))
    throw DataError(fmt::format(
        "{} must be JSON; got a leading byte order mark, which Hugging Face does not read; save it without one",
        path));
  simdjson::dom::element root;
  auto error = parser.allocate(text.size(), 64);
  if (!error) error = parser.parse(text).get(root);
  if (error == simdjson::NUMBER_ERROR) {
    const std::string wide = rewrite_numbers(text, as_float_if_wide);
    error = parser.allocate(wide.size(), 64);
    if (!error) error = parser.parse(wide).get(root);
  }
  if (error)
    throw DataError(fmt::format("{} must be JSON; got '{}' ({}); copy the file again", path, preview_of(text),
                                simdjson::error_message(error)));
  return root;
}

std::string JsonView::preview() const {
  std::string text = value_.is_array()    ? "an array"
                     : value_.is_object() ? "an object"
                                          : simdjson::minify(value_);
  if (text.size() > 60) text.resize(60);
  return text;
}

void JsonView::reject(const std::string& rule, const std::string& got, const char* fix) const {
  throw DataError(fmt::format("{}; got {}; {}", fault_text(where(), rule), got, fix));
}

std::optional<JsonView> JsonView::find(std::string_view key) const {
  simdjson::dom::element value;
  if (object().at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return member(value, key);
}

JsonView JsonView::at(std::string_view key) const {
  const auto value = find(key);
  if (!value) reject(fmt::format("must have '{}'", key), "none");
  return *value;
}

std::string JsonView::text() const {
  std::string_view text;
  if (value_.get(text) != simdjson::SUCCESS) reject("must be a string");
  return std::string(text);
}

std::string JsonView::text(std::string_view key, const char* fallback) const {
  const auto value = find(key);
  return value ? value->text() : fallback;
}

bool JsonView::boolean() const {
  bool value = false;
  if (value_.get(value) != simdjson::SUCCESS) reject("must be true or false");
  return value;
}

bool JsonView::boolean(std::string_view key, bool fallback) const {
  const auto value = find(key);
  return value ? value->boolean() : fallback;
}

std::int64_t JsonView::integer(std::int64_t least, std::int64_t most) const {
  std::int64_t value = 0;
  if (value_.get(value) != simdjson::SUCCESS || value < least || value > most)
    reject(fmt::format("must be an integer from {} to {}", least, most));
  return value;
}

double JsonView::number() const {
  double value = 0;
  if (value_.get(value) != simdjson::SUCCESS) reject("must be a number");
  return value;
}

simdjson::dom::array JsonView::array() const {
  simdjson::dom::array array;
  if (value_.get(array) != simdjson::SUCCESS) reject("must be an array");
  return array;
}

simdjson::dom::object JsonView::object() const {
  simdjson::dom::object object;
  if (value_.get(object) != simdjson::SUCCESS) reject("must be an object");
  return object;
}

std::vector<JsonView> JsonView::items() const {
  std::vector<JsonView> items;
  for (const simdjson::dom::element item : array())
    items.emplace_back(item, *file_, fmt::format("{}[{}]", path_, items.size()));
  return items;
}

void JsonView::allow_only(std::initializer_list<std::string_view> keys) const {
  std::vector<std::string_view> seen;
  for (const auto& [key, value] : object()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      member(value, key).reject("must be a known key");
    if (std::find(seen.begin(), seen.end(), key) != seen.end())
      member(value, key).reject("must occur once", "it twice");
    seen.push_back(key);
  }
}

std::optional<std::string> read_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::string bytes;
  bytes.reserve(text.size() * 3 / 4);
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::size_t value = kDigits.find(c);
    if (value == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count & 255));
  }
  return count < 6 ? std::optional(bytes) : std::nullopt;
}

}  // namespace colonnade::tokenizers
