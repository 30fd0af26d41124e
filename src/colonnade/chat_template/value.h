// The values of a chat template: the subset of Python's values that templates use.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "colonnade/base/error.h"
#include "colonnade/chat_template/provenance.h"

namespace colonnade::chat_template {

struct Node;
class Value;

/// Cost of one step of a template, in bytes that could be copied in the same time.
constexpr std::size_t kStep = 16;

/// The remaining cost limit of a rendering, and its current line. One unit is one byte of output.
class Budget {
 public:
  explicit Budget(std::string name) : name_(std::move(name)) {}
  /// Spends units. Throws DataError when the budget is exhausted.
  void spend(std::size_t units) {
    if (units > left_)
      fail("rendering must end within 200 million bytes, or 12 million steps", "more", "fix the template");
    left_ -= units;
  }
  /// Throws DataError "NAME: line N: <rule>; got <got>; <fix>".
  [[noreturn]] void fail(const std::string& rule, const std::string& got, const std::string& fix) const {
    throw DataError(fmt::format("{}: line {}: {}; got {}; {}", name_, line, rule, got, fix));
  }
  int line = 1;
  int lazy_depth = 0;  ///< number of live LazyScope objects

 private:
  std::string name_;
  std::size_t left_ = 200'000'000;
};

/// Marks evaluation that is lazy in Jinja, whose map, select and unique process an item only when it is
/// requested. While it lives, operations whose result could differ because of that are rejected.
class LazyScope {
 public:
  explicit LazyScope(Budget& budget) : budget_(budget) { ++budget_.lazy_depth; }
  LazyScope(const LazyScope&) = delete;
  LazyScope& operator=(const LazyScope&) = delete;
  ~LazyScope() { --budget_.lazy_depth; }

 private:
  Budget& budget_;
};

/// The Python type of a list.
enum class ListKind : std::uint8_t {
  kList,
  kTuple,
  kRange,      ///< range(): cannot be written
  kView,       ///< keys(), values(), items(): no indices, cannot be written
  kGenerator,  ///< single pass: always true, no length and no indices
};

struct List {
  std::vector<Value> items;
  ListKind kind = ListKind::kList;
  int depth = 1;                     ///< nesting depth of lists and mappings
  mutable std::size_t consumed = 0;  ///< consumed items of a generator; kUnknown if Jinja's number may differ
  static constexpr std::size_t kUnknown = ~std::size_t{0};
  /// Number of consumed items of a generator. Throws DataError if it is unknown.
  std::size_t num_consumed(const Budget& budget) const;
  /// Sets the number of consumed items of a generator.
  void consume(std::size_t count, const Budget& budget) const;
  [[nodiscard]] bool is_indexable() const { return kind <= ListKind::kRange; }
  [[nodiscard]] bool is_data() const { return kind <= ListKind::kTuple; }
};

/// A dict with string keys in insertion order.
struct Mapping {
  std::vector<std::pair<std::string, Value>> items;
  int depth = 1;
  [[nodiscard]] const Value* find(std::string_view key) const;
};

/// A namespace(), the only mutable value. Owned by the rendering.
struct Namespace {
  std::map<std::string, Value, std::less<>> items;
};

/// The variable `loop`. Items are fetched one by one, because the body may change variables of the loop's
/// condition.
struct Loop {
  std::size_t index = 0;
  std::vector<Value> items;          ///< items fetched so far
  std::function<bool()> fetch_next;  ///< appends an item, or returns false at the end; empty after the loop
  /// Whether there is an item `i`; fetches up to it.
  bool has_item(std::size_t i);
};

/// A macro, or a function by its name.
struct Callable {
  const Node* macro = nullptr;
  std::string name;
};

class Value {
 public:
  struct Undefined {
    std::string name;  ///< name of the missing variable or attribute
  };
  struct None {};
  using Text = std::shared_ptr<const std::string>;
  /// A string from `safe` or `escape`, Jinja's Markup: `+`, `join()` and `replace()` escape the strings they
  /// insert.
  struct Safe {
    Text text;
  };
  using Data =
      std::variant<Undefined, None, bool, std::int64_t, double, Text, std::shared_ptr<const List>,
                   std::shared_ptr<const Mapping>, Namespace*, std::shared_ptr<Loop>, Callable, Safe>;

  Value() = default;
  Value(Data data) : data_(std::move(data)) {}  // NOLINT(google-explicit-constructor): a value is its data
  static Value undefined(std::string name) { return {Undefined{std::move(name)}}; }
  static Value none() { return {None{}}; }
  static Value text(std::string text) { return {std::make_shared<const std::string>(std::move(text))}; }
  static Value safe(std::string text) { return {Safe{std::make_shared<const std::string>(std::move(text))}}; }
  /// A string with the type (plain or safe) and the messages of `model`.
  static Value like(const Value& model, std::string text);
  static Value integer(std::int64_t number) { return {number}; }
  /// Throws DataError for more than 100 levels of nesting.
  static Value list(std::vector<Value> items, const Budget& budget, ListKind kind = ListKind::kList);
  static Value mapping(std::vector<std::pair<std::string, Value>> items, const Budget& budget);

  [[nodiscard]] const Data& data() const { return data_; }
  template <typename T>
  [[nodiscard]] const T* as() const {
    return std::get_if<T>(&data_);
  }
  [[nodiscard]] bool is_undefined() const { return as<Undefined>() != nullptr; }
  [[nodiscard]] bool is_none() const { return as<None>() != nullptr; }
  /// The text of a plain or safe string; null for another type.
  [[nodiscard]] const std::string* text() const;
  [[nodiscard]] bool is_safe() const { return as<Safe>() != nullptr; }
  [[nodiscard]] const List* list() const;
  [[nodiscard]] const Mapping* mapping() const;
  /// Integers and booleans, as in Python.
  [[nodiscard]] bool is_integer() const { return as<std::int64_t>() != nullptr || as<bool>() != nullptr; }
  [[nodiscard]] std::int64_t integer() const;
  [[nodiscard]] bool is_number() const { return is_integer() || as<double>() != nullptr; }
  [[nodiscard]] double number() const;
  [[nodiscard]] int depth() const;

  /// The messages that a string, number or boolean comes from; empty if it comes from none.
  [[nodiscard]] const Provenance& provenance() const;
  /// The same value with another provenance.
  [[nodiscard]] Value with(Provenance provenance) const;

  [[nodiscard]] bool is_truthy() const;
  /// "a string", "an undefined value ('tools')", for messages.
  [[nodiscard]] std::string kind() const;

 private:
  Data data_;
  std::shared_ptr<const Provenance> provenance_;
};

/// str(value), as `{{ value }}` writes it.
std::string text_of(const Value& value, Budget& budget);
/// Style of json.dumps(); `indent` < 0 writes one line.
struct JsonStyle {
  bool ascii = false, sorted = false;
  int indent = -1;
  std::string between = ", ", colon = ": ";
};
/// json.dumps(value)
std::string json_of(const Value& value, const JsonStyle& style, Budget& budget);
/// Three-way comparison (< 0, 0, > 0) of two numbers, exact for an integer and a float too.
int order_of_numbers(const Value& left, const Value& right);
/// left == right
bool equal(const Value& left, const Value& right, Budget& budget);
/// The items that a loop iterates over: items, keys, or characters. Consumes a generator. Throws DataError
/// for a value that is not iterable.
std::vector<Value> items_of(const Value& value, Budget& budget);
/// The characters of a string.
std::vector<std::string_view> characters(std::string_view text);
/// The text with HTML entities for & < > ' and ".
std::string escaped(std::string_view text, Budget& budget);
/// Python's str.isspace of one character.
bool is_space(char32_t c);
/// Whether `name` is a method of Python's strings, lists or dicts; these shadow keys after a dot.
bool is_method(const Value& value, std::string_view name);

}  // namespace colonnade::chat_template
