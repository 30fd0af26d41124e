// See read.h. A stack machine: opcodes push values, combine those above the last mark, and remember some by
// number.
#include "colonnade/pickle/read.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <unordered_map>

#include "colonnade/base/error.h"
#include "colonnade/base/printable.h"
#include "colonnade/pickle/classes.h"
#include "colonnade/pickle/opcodes.h"

namespace colonnade::pickle {
namespace {

class Machine {
 public:
  Machine(std::span<const std::byte> bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  Document run() {
    while (true) {
      const unsigned char opcode = next_byte();
      if (opcode == kStop) break;
      execute(opcode);
    }
    document_.root = pop();
    return std::move(document_);
  }

 private:
  [[noreturn]] void fail(std::string_view rule) const {
    throw DataError(fmt::format(
        "{}: its pickle must be intact; got {} at byte {}; copy or save the file again", source_, rule, at_));
  }

  // ---- bytes

  std::span<const std::byte> take(std::uint64_t count) {
    if (count > bytes_.size() - at_) fail("an end in the middle of a value");
    const auto taken = bytes_.subspan(at_, count);
    at_ += count;
    return taken;
  }
  unsigned char next_byte() { return static_cast<unsigned char>(take(1)[0]); }
  std::uint64_t little_endian(std::size_t size) {
    std::uint64_t value = 0;
    const auto taken = take(size);
    for (std::size_t i = 0; i < size; ++i) value |= static_cast<std::uint64_t>(taken[i]) << (8 * i);
    return value;
  }
  std::string characters(std::uint64_t count) {
    const auto taken = take(count);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  std::string line() {
    std::string text;
    for (char c = static_cast<char>(next_byte()); c != '\n'; c = static_cast<char>(next_byte())) text += c;
    return text;
  }

  // ---- the stack, whose marks are null

  Value& make(Kind kind) {
    Value& value = document_.values.emplace_back();
    value.kind = kind;
    return value;
  }
  void push(Value& value) { stack_.push_back(&value); }
  Value* pop() {
    if (stack_.empty() || stack_.back() == nullptr) fail("a value that is missing on the stack");
    Value* value = stack_.back();
    stack_.pop_back();
    return value;
  }
  Value& top() {
    if (stack_.empty() || stack_.back() == nullptr) fail("a value that is missing on the stack");
    return *stack_.back();
  }
  /// Removes the values above the last mark, and the mark.
  std::vector<const Value*> pop_to_mark() {
    std::size_t first = stack_.size();
    while (first > 0 && stack_[first - 1] != nullptr) --first;
    if (first == 0) fail("a list without its begin");
    std::vector<const Value*> values(stack_.begin() + static_cast<std::ptrdiff_t>(first), stack_.end());
    stack_.resize(first - 1);
    return values;
  }

  void push_integer(std::int64_t number) {
    Value& value = make(Kind::kInt);
    value.integer = number;
    push(value);
  }
  void push_text(Kind kind, std::string text) {
    Value& value = make(kind);
    value.text = std::move(text);
    push(value);
  }
  void push_items(Kind kind, std::vector<const Value*> items) {
    if (kind == Kind::kDict && items.size() % 2 != 0) fail("a key without a value");
    Value& value = make(kind);
    value.items = std::move(items);
    push(value);
  }
  void push_bool(bool truth) {
    Value& value = make(Kind::kBool);
    value.integer = truth ? 1 : 0;
    push(value);
  }

  /// A little-endian two's complement integer of any length.
  void push_long(std::uint64_t size) {
    const auto digits = take(size);
    if (size > sizeof(std::int64_t)) {
      push_text(Kind::kBytes, {reinterpret_cast<const char*>(digits.data()), digits.size()});
      return;
    }
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < size; ++i) number |= static_cast<std::uint64_t>(digits[i]) << (8 * i);
    if (size > 0 && size < sizeof(number) && (static_cast<unsigned>(digits[size - 1]) & 0x80U) != 0)
      number |= ~std::uint64_t{0} << (8 * size);
    push_integer(static_cast<std::int64_t>(number));
  }

  /// Protocol 0: I and L are decimal; I01 and I00 are booleans.
  void push_decimal(std::string text, bool is_long) {
    if (!is_long && (text == "01" || text == "00")) return push_bool(text == "01");
    if (is_long && text.ends_with('L')) text.pop_back();
    std::int64_t number = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (fault != std::errc() || end != text.data() + text.size()) fail("a damaged integer");
    push_integer(number);
  }

  void push_real_text(const std::string& text) {
    Value& value = make(Kind::kFloat);
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value.real);
    if (fault != std::errc() || end != text.data() + text.size()) fail("a damaged number");
    push(value);
  }

  void push_class(const std::string& module, const std::string& name) {
    if (!is_known_class(module, name))
      throw DataError(fmt::format(
          "{}: a pickle must name only classes of checkpoints; got {}; nothing of it was executed: load the file "
          "with the program that wrote it and save it without objects of that class",
          source_, printable(module + "." + name)));
    push_text(Kind::kClass, module + "." + name);
  }

  // ---- the memo

  void remember(std::uint64_t number) { memo_[number] = &top(); }
  void recall(std::uint64_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) fail("a reference to a missing value");
    stack_.push_back(found->second);
  }
  std::uint64_t decimal_index() {
    const std::string text = line();
    std::uint64_t number = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (fault != std::errc() || end != text.data() + text.size()) fail("a damaged reference");
    return number;
  }

  // ---- objects

  /// Bounds what calls copy, as a hostile pickle may pass one large value to many calls.
  void count_copied(std::size_t elements) {
    copied_ += elements;
    if (copied_ > bytes_.size()) fail("more elements than its bytes can hold");
  }

  /// Containers and texts that Python makes by a call; inert records for all other classes.
  void call(const Value& callee, const Value& arguments) {
    if (!callee.is(Kind::kClass)) fail("a call of a value that is no class");
    if (!arguments.is(Kind::kTuple)) fail("a call without arguments");
    count_copied(arguments.items.size());
    for (const Value* argument : arguments.items)
      count_copied(argument->items.size() + argument->text.size());
    const std::string& name = callee.text;
    const Value* first = arguments.items.empty() ? nullptr : arguments.items.front();
    const bool first_has_items =
        first != nullptr && (first->is(Kind::kList) || first->is(Kind::kTuple) || first->is(Kind::kSet));
    if (name == "collections.OrderedDict" &&
        (first == nullptr || (first->is(Kind::kList) && first->items.empty())))
      return push_items(Kind::kDict, {});
    if (name == "torch.Size" && first_has_items) return push_items(Kind::kTuple, first->items);
    if (name.ends_with("builtins.set") || name.ends_with("builtins.frozenset") || name == "__builtin__.set")
      if (first == nullptr || first_has_items)
        return push_items(Kind::kSet, first == nullptr ? std::vector<const Value*>() : first->items);
    if (name == "_codecs.encode" && first != nullptr && first->is(Kind::kText))
      return push_text(Kind::kBytes, first->text);
    Value& object = make(Kind::kObject);
    object.text = name;
    object.items = arguments.items;
    push(object);
  }

  void set_state() {
    const Value* state = pop();
    Value& object = top();
    if (object.is(Kind::kObject)) object.state = state;  // attributes of a container carry nothing
  }

  /// Adds elements to a list, set, dict or an object that acts as one.
  void add(Value& container, const std::vector<const Value*>& values, bool in_pairs) {
    const bool fits =
        in_pairs ? container.is(Kind::kDict) : container.is(Kind::kList) || container.is(Kind::kSet);
    if (!fits && !container.is(Kind::kObject)) fail("elements of a value that holds none");
    if (in_pairs && values.size() % 2 != 0) fail("a key without a value");
    auto& into = container.is(Kind::kObject) ? container.added : container.items;
    into.insert(into.end(), values.begin(), values.end());
  }

  void add_to_top(bool in_pairs) {
    const auto values = pop_to_mark();
    add(top(), values, in_pairs);
  }

  void push_tuple(std::size_t size) {
    std::vector<const Value*> items(size);
    for (std::size_t i = size; i > 0; --i) items[i - 1] = pop();
    push_items(Kind::kTuple, std::move(items));
  }

  void execute(unsigned char opcode) {
    const bool known = execute_number(opcode) || execute_text(opcode) || execute_container(opcode) ||
                       execute_elements(opcode) || execute_memo(opcode) || execute_object(opcode);
    if (!known) fail(fmt::format("the unknown opcode {:#04x}", opcode));
  }

  /// Runs an action; true, for the functions below.
  template <typename Action>
  static bool did(const Action& action) {
    action();
    return true;
  }

  bool execute_number(unsigned char opcode) {
    if (opcode == kNone) return did([&] { push(make(Kind::kNone)); });
    if (opcode == kNewTrue || opcode == kNewFalse) return did([&] { push_bool(opcode == kNewTrue); });
    if (opcode == kInt || opcode == kLong) return did([&] { push_decimal(line(), opcode == kLong); });
    if (opcode == kBinInt) return did([&] { push_integer(static_cast<std::int32_t>(little_endian(4))); });
    if (opcode == kBinInt1) return did([&] { push_integer(next_byte()); });
    if (opcode == kBinInt2) return did([&] { push_integer(static_cast<std::int64_t>(little_endian(2))); });
    if (opcode == kLong1) return did([&] { push_long(next_byte()); });
    if (opcode == kLong4) return did([&] { push_long(little_endian(4)); });
    if (opcode == kFloat) return did([&] { push_real_text(line()); });
    if (opcode == kBinFloat) return did([&] { push_real(); });
    return false;
  }

  void push_real() {
    std::uint64_t bits = 0;
    for (const std::byte b : take(8)) bits = bits << 8U | static_cast<std::uint64_t>(b);
    Value& value = make(Kind::kFloat);
    value.real = std::bit_cast<double>(bits);
    push(value);
  }

  bool execute_text(unsigned char opcode) {
    if (opcode == kUnicode) return did([&] { push_text(Kind::kText, line()); });
    if (opcode == kString) return did([&] { push_quoted(line()); });
    if (opcode == kShortBinUnicode || opcode == kShortBinString)
      return did([&] { push_text(Kind::kText, characters(next_byte())); });
    if (opcode == kBinUnicode || opcode == kBinString)
      return did([&] { push_text(Kind::kText, characters(little_endian(4))); });
    if (opcode == kBinUnicode8) return did([&] { push_text(Kind::kText, characters(little_endian(8))); });
    if (opcode == kShortBinBytes) return did([&] { push_text(Kind::kBytes, characters(next_byte())); });
    if (opcode == kBinBytes) return did([&] { push_text(Kind::kBytes, characters(little_endian(4))); });
    if (opcode == kBinBytes8 || opcode == kByteArray8)
      return did([&] { push_text(Kind::kBytes, characters(little_endian(8))); });
    return false;
  }

  void push_quoted(const std::string& text) {
    if (text.size() < 2) fail("a damaged text");
    push_text(Kind::kText, text.substr(1, text.size() - 2));
  }

  bool execute_container(unsigned char opcode) {
    if (opcode == kMark) return did([&] { stack_.push_back(nullptr); });
    if (opcode == kEmptyDict) return did([&] { push_items(Kind::kDict, {}); });
    if (opcode == kEmptyList) return did([&] { push_items(Kind::kList, {}); });
    if (opcode == kEmptyTuple) return did([&] { push_items(Kind::kTuple, {}); });
    if (opcode == kEmptySet) return did([&] { push_items(Kind::kSet, {}); });
    if (opcode == kDict) return did([&] { push_items(Kind::kDict, pop_to_mark()); });
    if (opcode == kList) return did([&] { push_items(Kind::kList, pop_to_mark()); });
    if (opcode == kTuple) return did([&] { push_items(Kind::kTuple, pop_to_mark()); });
    if (opcode == kFrozenSet) return did([&] { push_items(Kind::kSet, pop_to_mark()); });
    if (opcode >= kTuple1 && opcode <= kTuple3)
      return did([&] { push_tuple(static_cast<std::size_t>(opcode - kTuple1 + 1)); });
    return false;
  }

  bool execute_elements(unsigned char opcode) {
    if (opcode == kAppends || opcode == kAddItems) return did([&] { add_to_top(false); });
    if (opcode == kSetItems) return did([&] { add_to_top(true); });
    if (opcode == kAppend)
      return did([&] {
        const Value* value = pop();
        add(top(), {value}, false);
      });
    if (opcode == kSetItem)
      return did([&] {
        const Value* value = pop();
        const Value* key = pop();
        add(top(), {key, value}, true);
      });
    if (opcode == kPopMark) return did([&] { pop_to_mark(); });
    if (opcode == kDup) return did([&] { stack_.push_back(&top()); });
    if (opcode == kPop)
      return did([&] {
        if (stack_.empty()) fail("a value that is missing on the stack");
        stack_.pop_back();
      });
    return false;
  }

  bool execute_memo(unsigned char opcode) {
    if (opcode == kPut) return did([&] { remember(decimal_index()); });
    if (opcode == kBinPut) return did([&] { remember(next_byte()); });
    if (opcode == kLongBinPut) return did([&] { remember(little_endian(4)); });
    if (opcode == kMemoize) return did([&] { remember(memo_.size()); });
    if (opcode == kGet) return did([&] { recall(decimal_index()); });
    if (opcode == kBinGet) return did([&] { recall(next_byte()); });
    if (opcode == kLongBinGet) return did([&] { recall(little_endian(4)); });
    if (opcode == kFrame) return did([&] { take(8); });
    if (opcode == kProto)
      return did([&] {
        if (next_byte() > 5) fail("a protocol newer than 5");
      });
    return false;
  }

  bool execute_object(unsigned char opcode) {
    if (opcode == kGlobal)
      return did([&] {
        const std::string module = line();
        push_class(module, line());
      });
    if (opcode == kStackGlobal)
      return did([&] {
        const Value* name = pop();
        const Value* module = pop();
        if (!name->is(Kind::kText) || !module->is(Kind::kText)) fail("a class without a name");
        push_class(module->text, name->text);
      });
    if (opcode == kReduce || opcode == kNewObj || opcode == kNewObjEx)
      return did([&] {
        if (opcode == kNewObjEx && !pop()->is(Kind::kDict)) fail("a call without arguments");
        const Value* arguments = pop();
        const Value* callee = pop();
        call(*callee, *arguments);
      });
    if (opcode == kBuild) return did([&] { set_state(); });
    if (opcode == kBinPersId)
      return did([&] {
        const Value* id = pop();
        Value& value = make(Kind::kPersistent);
        value.state = id;
        push(value);
      });
    return false;
  }

  std::span<const std::byte> bytes_;
  const std::string& source_;
  std::size_t at_ = 0;
  std::size_t copied_ = 0;
  Document document_;
  std::vector<Value*> stack_;
  std::unordered_map<std::uint64_t, Value*> memo_;
};

}  // namespace

Document read(std::span<const std::byte> bytes, const std::string& source) {
  return Machine(bytes, source).run();
}

}  // namespace colonnade::pickle
