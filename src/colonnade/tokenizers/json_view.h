// Checked access to JSON: every error names the file and the JSON path.
#pragma once

#include <simdjson.h>

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "colonnade/base/error.h"

namespace colonnade::tokenizers {

/// A JSON value and its path. All functions throw DataError for a value of another type or range.
class JsonView {
 public:
  JsonView(simdjson::dom::element value, const std::string& file, std::string path)
      : value_(value), file_(&file), path_(std::move(path)) {}

  /// The value of a key; nullopt if the key is missing or null.
  [[nodiscard]] std::optional<JsonView> find(std::string_view key) const;
  [[nodiscard]] JsonView at(std::string_view key) const;  ///< must exist
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::string text(std::string_view key) const { return at(key).text(); }
  [[nodiscard]] std::string text(std::string_view key, const char* fallback) const;
  [[nodiscard]] bool boolean(std::string_view key) const { return at(key).boolean(); }
  [[nodiscard]] bool boolean(std::string_view key, bool fallback) const;
  [[nodiscard]] bool boolean() const;
  [[nodiscard]] std::int64_t integer(std::int64_t least, std::int64_t most) const;
  [[nodiscard]] double number() const;
  [[nodiscard]] bool is_array() const { return value_.is_array(); }
  [[nodiscard]] bool is_text() const { return value_.is_string(); }
  [[nodiscard]] std::vector<JsonView> items() const;
  [[nodiscard]] simdjson::dom::array array() const;
  [[nodiscard]] simdjson::dom::object object() const;
  /// Throws DataError for a key that is not in `keys`, or that occurs twice.
  void allow_only(std::initializer_list<std::string_view> keys) const;

  /// Throws DataError "FILE: PATH <rule>; got <got>; <fix>" for a rule "must ...", else with "PATH: <rule>".
  [[noreturn]] void reject(const std::string& rule, const std::string& got,
                           const char* fix = "fix the file") const;
  [[noreturn]] void reject(const std::string& rule) const { reject(rule, preview()); }
  [[nodiscard]] std::string where() const {
    return path_.empty() ? *file_ : fmt::format("{}: {}", *file_, path_);
  }
  [[nodiscard]] JsonView member(simdjson::dom::element value, std::string_view name) const {
    return {value, *file_, path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name)};
  }

 private:
  [[nodiscard]] std::string preview() const;  ///< first characters of the value

  simdjson::dom::element value_;
  const std::string* file_;
  std::string path_;
};

/// The text with rewrite(number) in place of every number that Python's json.loads accepts.
std::string rewrite_numbers(std::string_view json,
                            const std::function<std::string(std::string_view)>& rewrite);

/// The root of a JSON file of up to 1 GB and at most 64 levels; integers wider than 64 bits become float64.
simdjson::dom::element parse_json(simdjson::dom::parser& parser, const std::string& path,
                                  const std::string& text);

/// Calls `use` with the root of a JSON text. Views are valid only during the call.
template <typename Use>
auto with_json(const std::string& path, const std::string& text, Use&& use) {
  simdjson::dom::parser parser(std::size_t{1} << 30);
  return use(JsonView(parse_json(parser, path, text), path, ""));
}

/// The bytes of base64 text; nullopt if it is not base64.
std::optional<std::string> read_base64(std::string_view text);

}  // namespace colonnade::tokenizers
