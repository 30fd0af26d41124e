// Values of Python pickles as inert data: a class is a name, an object what it was made from. Nothing is
// executed.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace colonnade::pickle {

enum class Kind : std::uint8_t {
  kNone,
  kBool,
  kInt,  ///< of 64 bits
  kFloat,
  kText,
  kBytes,  ///< also integers beyond 64 bits, as their little-endian bytes
  kList,
  kTuple,
  kSet,
  kDict,
  kClass,       ///< a class or function: `text` is "module.name"
  kObject,      ///< an object of the class `text`, made from `items` (arguments) and `state`
  kPersistent,  ///< an object outside the pickle, with the id `state`
};

struct Value {
  Kind kind = Kind::kNone;
  std::int64_t integer = 0;  ///< of kInt; 0 or 1 of kBool
  double real = 0;           ///< of kFloat
  std::string text;          ///< of kText, kBytes, kClass, kObject
  /// Elements; of a dict keys and values in turns; of an object the arguments of its class.
  std::vector<const Value*> items;
  const Value* state = nullptr;  ///< of an object: its attributes (__setstate__); null: none
  /// Elements that were added to an object, as to a list or (keys and values in turns) a dict.
  std::vector<const Value*> added;

  [[nodiscard]] bool is(Kind wanted) const { return kind == wanted; }
  [[nodiscard]] bool is_text(std::string_view wanted) const { return kind == Kind::kText && text == wanted; }
  /// Whether it is an object of the class.
  [[nodiscard]] bool is_a(std::string_view name) const { return kind == Kind::kObject && text == name; }
};

/// A pickle. It owns its values, which may refer to each other in any way, also in circles.
struct Document {
  std::deque<Value> values;
  const Value* root = nullptr;
};

/// The value of a dict for a text key; null when there is none, or `dict` is no dict.
const Value* find(const Value* dict, std::string_view key);

/// Attributes of an object (its state, or a dict itself) for a name; null when there is none.
const Value* attribute(const Value* object, std::string_view name);

/// The integers of a list or tuple (torch.Size is read as a tuple); false when it is none of these.
bool read_integers(const Value* value, std::vector<std::int64_t>& integers);

}  // namespace colonnade::pickle
