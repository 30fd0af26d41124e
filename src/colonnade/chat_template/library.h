// Functions, filters, tests and methods that chat templates may call: those of Jinja and Python that
// templates of language models use. All throw DataError for a name or an argument that is not known here.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "colonnade/chat_template/value.h"

namespace colonnade::chat_template {

/// What a call is given, in its order and by name.
class Arguments {
 public:
  Arguments(Budget& budget, std::string of) : budget(budget), of_(std::move(of)) {}

  /// Argument `i`, or the one of that name; null: not given. Marks it as read.
  const Value* get(std::size_t i, std::string_view name);
  const Value& need(std::size_t i, std::string_view name);
  std::string text(std::size_t i, std::string_view name, const std::string& otherwise);
  std::int64_t integer(std::size_t i, std::string_view name, std::int64_t otherwise);
  /// Those from `first` on and the named ones, for a filter or a test that this one calls. Marks them as
  /// read.
  [[nodiscard]] Arguments rest(std::size_t first, const std::string& name);
  /// Throws DataError for an argument that nobody read.
  void finish() const;
  [[noreturn]] void fail(const std::string& rule, const Value& got) const {
    budget.fail(fmt::format("{}: {}", of_, rule), got.kind(), "mend the template or the data");
  }
  [[nodiscard]] const std::string& of() const { return of_; }

  Budget& budget;
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> named;

 private:
  std::string of_;
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
/// Tuples of a key and its value.
std::vector<Value> pairs_of(const Mapping& mapping, Budget& budget);
/// value.name and value[key]: undefined where it is not there.
Value attribute(const Value& value, const std::string& name, Budget& budget);
Value item(const Value& value, const Value& key, Budget& budget);
/// value[first:stop:step]; null: not given.
Value slice(const Value& value, const Value* first, const Value* stop, const Value* step, Budget& budget);
/// left op right, of + - * / // %.
Value binary(std::string_view op, const Value& left, const Value& right, Budget& budget);
/// Below 0, 0 or above it: the order that Python's `op` sees. Throws DataError where they have none.
int order(const Value& left, const Value& right, std::string_view op, Budget& budget);
/// left op right, of == != < <= > >= in, "not in".
bool compare(std::string_view op, const Value& left, const Value& right, Budget& budget);

}  // namespace colonnade::chat_template
