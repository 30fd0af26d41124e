// What a chat template computes with: Python's values, as far as templates meet them.
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

/// What a step of a template costs, in bytes that could be copied meanwhile.
constexpr std::size_t kStep = 16;

/// What a rendering may still spend, and where it is. One unit is a byte that is made.
class Budget {
 public:
  explicit Budget(std::string name) : name_(std::move(name)) {}
  /// Throws DataError when all is spent.
  void spend(std::size_t units) {
    if (units > left_)
      fail("must end within 200 million bytes, or 12 million steps", "more", "mend the template");
    left_ -= units;
  }
  /// "NAME: line N: <rule>; got <got>; <way out>"
  [[noreturn]] void fail(const std::string& rule, const std::string& got, const std::string& way_out) const {
    throw DataError(fmt::format("{}: line {}: {}; got {}; {}", name_, line, rule, got, way_out));
  }
  int line = 1;
  int later = 0;  ///< of Later: how many there are

 private:
  std::string name_;
  std::size_t left_ = 200'000'000;
};

/// While it lives, what is done is done later in Jinja, whose map, select and unique take an item when they
/// are asked for one: what could have another outcome then is refused.
class Later {
 public:
  explicit Later(Budget& budget) : budget_(budget) { ++budget_.later; }
  Later(const Later&) = delete;
  Later& operator=(const Later&) = delete;
  ~Later() { --budget_.later; }

 private:
  Budget& budget_;
};

/// What of Python a list stands for.
enum class Form : std::uint8_t {
  kList,
  kTuple,
  kRange,  ///< range(): cannot be written
  kView,   ///< keys(), values(), items(): without numbers, cannot be written
  kOnce,   ///< a generator: always true, without length and numbers, gone through once
};

struct List {
  std::vector<Value> items;
  Form form = Form::kList;
  int depth = 1;                  ///< lists and mappings within each other
  mutable std::size_t taken = 0;  ///< of a generator: items that are gone; kBroken: nobody can tell
  static constexpr std::size_t kBroken = ~std::size_t{0};
  /// Of a generator: how many items are gone. Throws DataError where nobody can tell.
  std::size_t gone(const Budget& budget) const;
  /// Of a generator: `count` items are gone from now on.
  void take(std::size_t count, const Budget& budget) const;
  [[nodiscard]] bool has_numbers() const { return form <= Form::kRange; }
  [[nodiscard]] bool is_data() const { return form <= Form::kTuple; }
};

/// Keys are strings, in the order in which they came.
struct Mapping {
  std::vector<std::pair<std::string, Value>> items;
  int depth = 1;
  [[nodiscard]] const Value* find(std::string_view key) const;
};

/// namespace(): the one value that changes. Owned by the rendering.
struct Space {
  std::map<std::string, Value, std::less<>> items;
};

/// The variable `loop`. Items are asked for one by one, since the body may change what the condition reads.
struct Loop {
  std::size_t index = 0;
  std::vector<Value> items;    ///< that came so far
  std::function<bool()> more;  ///< puts one more there, or gives false; empty: the loop is over
  /// Whether there is an item `i`.
  bool reach(std::size_t i);
};

/// What can be called: a macro, or a function by its name.
struct Callable {
  const Node* macro = nullptr;
  std::string name;
};

class Value {
 public:
  struct Undefined {
    std::string name;  ///< what was not there
  };
  struct None {};
  using Text = std::shared_ptr<const std::string>;
  /// A string that `safe` or `escape` made, Jinja's Markup: `+`, `join()` and `replace()` escape what they
  /// put into it.
  struct Safe {
    Text text;
  };
  using Data = std::variant<Undefined, None, bool, std::int64_t, double, Text, std::shared_ptr<const List>,
                            std::shared_ptr<const Mapping>, Space*, std::shared_ptr<Loop>, Callable, Safe>;

  Value() = default;
  Value(Data data) : data_(std::move(data)) {}  // NOLINT(google-explicit-constructor): a value is its data
  static Value undefined(std::string name) { return {Undefined{std::move(name)}}; }
  static Value none() { return {None{}}; }
  static Value text(std::string text) { return {std::make_shared<const std::string>(std::move(text))}; }
  static Value safe(std::string text) { return {Safe{std::make_shared<const std::string>(std::move(text))}}; }
  /// A string of the kind of `model`, out of the same messages.
  static Value like(const Value& model, std::string text);
  static Value integer(std::int64_t number) { return {number}; }
  /// Throws DataError when they lie more than 100 deep in each other.
  static Value list(std::vector<Value> items, const Budget& budget, Form form = Form::kList);
  static Value mapping(std::vector<std::pair<std::string, Value>> items, const Budget& budget);

  [[nodiscard]] const Data& data() const { return data_; }
  template <typename T>
  [[nodiscard]] const T* as() const {
    return std::get_if<T>(&data_);
  }
  [[nodiscard]] bool is_undefined() const { return as<Undefined>() != nullptr; }
  [[nodiscard]] bool is_none() const { return as<None>() != nullptr; }
  /// Null: it is something else. A safe string has a text too.
  [[nodiscard]] const std::string* text() const;
  [[nodiscard]] bool is_safe() const { return as<Safe>() != nullptr; }
  [[nodiscard]] const List* list() const;
  [[nodiscard]] const Mapping* mapping() const;
  /// Of an integer, true or false.
  [[nodiscard]] bool is_integer() const { return as<std::int64_t>() != nullptr || as<bool>() != nullptr; }
  [[nodiscard]] std::int64_t integer() const;
  [[nodiscard]] bool is_number() const { return is_integer() || as<double>() != nullptr; }
  [[nodiscard]] double number() const;
  [[nodiscard]] int depth() const;

  /// The messages that a string, a number or a boolean comes from; empty: none.
  [[nodiscard]] const Provenance& provenance() const;
  /// The same value with another provenance.
  [[nodiscard]] Value with(Provenance provenance) const;

  [[nodiscard]] bool truth() const;
  /// "a string", "an undefined value ('tools')", for messages.
  [[nodiscard]] std::string kind() const;

 private:
  Data data_;
  std::shared_ptr<const Provenance> provenance_;
};

/// str(value), as `{{ value }}` writes it.
std::string text_of(const Value& value, Budget& budget);
/// json.dumps(value); `indent` below 0: on one line.
struct JsonStyle {
  bool ascii = false, sorted = false;
  int indent = -1;
  std::string between = ", ", colon = ": ";
};
std::string json_of(const Value& value, const JsonStyle& style, Budget& budget);
/// Below 0, 0 or above it: the order of two numbers, exact for an integer and a float too.
int order_of_numbers(const Value& left, const Value& right);
/// left == right
bool equal(const Value& left, const Value& right, Budget& budget);
/// What a loop goes through: items, keys, or characters; those of a generator are gone then. Throws DataError
/// for what has none.
std::vector<Value> items_of(const Value& value, Budget& budget);
/// The characters of a string.
std::vector<std::string_view> characters(std::string_view text);
/// With HTML's names of & < > ' and ".
std::string escaped(std::string_view text, Budget& budget);
/// Python's str.isspace of one character.
bool is_space(char32_t c);
/// The attributes of Python's strings, lists and mappings, which shadow keys after a dot.
bool is_method(const Value& value, std::string_view name);

}  // namespace colonnade::chat_template
