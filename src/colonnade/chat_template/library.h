// Functions, filters, tests and methods of Jinja and Python that chat templates can call. All throw DataError
// for an unknown name or argument.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "colonnade/chat_template/value.h"

namespace colonnade::chat_template {

/// Positional and keyword arguments of a call.
class Arguments {
 public:
  Arguments(Budget& budget, std::string callee) : budget(budget), callee_(std::move(callee)) {}

  /// Argument `i`, or the one of that name; null if not given. Marks it as read.
  const Value* get(std::size_t i, std::string_view name);
  const Value& require(std::size_t i, std::string_view name);
  std::string text(std::size_t i, std::string_view name, const std::string& fallback);
  std::int64_t integer(std::size_t i, std::string_view name, std::int64_t fallback);
  /// The positional arguments from `first` and all keyword arguments, for a nested filter or test. Marks them
  /// as read.
  [[nodiscard]] Arguments rest(std::size_t first, const std::string& name);
  /// Throws DataError for an argument that was not read.
  void check_all_read() const;
  [[noreturn]] void fail(const std::string& rule, const Value& got) const {
    budget.fail(fmt::format("{}: {}", callee_, rule), got.kind(), "fix the template or the data");
  }
  [[nodiscard]] const std::string& callee() const { return callee_; }

  Budget& budget;
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> kwargs;

 private:
  std::string callee_;
  std::size_t read_ = 0;
  std::vector<std::string_view> read_names_;
};

/// value | name(...)
Value filter(std::string_view name, const Value& value, Arguments& arguments);
/// value is name(...)
bool test(std::string_view name, const Value& value, Arguments& arguments);
/// value.name(...)
Value method(std::string_view name, const Value& value, Arguments& arguments);
/// range(...)
Value range(Arguments& arguments);
/// The (key, value) tuples of a mapping.
std::vector<Value> pairs_of(const Mapping& mapping, Budget& budget);
/// value.name and value[key]; undefined if missing.
Value attribute(const Value& value, const std::string& name, Budget& budget);
Value item(const Value& value, const Value& key, Budget& budget);
/// value[first:stop:step]; null if not given.
Value slice(const Value& value, const Value* first, const Value* stop, const Value* step, Budget& budget);
/// left op right for + - * / // %.
Value binary(std::string_view op, const Value& left, const Value& right, Budget& budget);
/// Three-way comparison (< 0, 0, > 0) for Python's `op`. Throws DataError if the values have no order.
int order(const Value& left, const Value& right, std::string_view op, Budget& budget);
/// left op right for == != < <= > >= in, "not in".
bool compare(std::string_view op, const Value& left, const Value& right, Budget& budget);

}  // namespace colonnade::chat_template
