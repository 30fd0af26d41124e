// See library.h: operators, attributes and slices.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "colonnade/chat_template/library.h"

namespace colonnade::chat_template {
namespace {

[[noreturn]] void reject_operands(std::string_view op, const Value& left, const Value& right,
                                  const Budget& budget) {
  budget.fail(fmt::format("'{}' must have operands of matching types", op),
              left.kind() + " and " + right.kind(), "fix the template or the data");
}

Value integer_result(std::string_view op, std::int64_t a, std::int64_t b, const Budget& budget) {
  std::int64_t result = 0;
  bool over = false;
  if (op == "+") {
    over = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    over = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    over = __builtin_mul_overflow(a, b, &result);
  } else {
    over = b == 0 || (b == -1 && a == INT64_MIN);
    if (!over) {
      const bool down = a % b != 0 && (a < 0) != (b < 0);
      result = op == "//" ? a / b - (down ? 1 : 0) : a % b + (down ? b : 0);
    }
  }
  if (over)
    budget.fail("integers must fit 64 bits, and divisors must not be 0", fmt::format("{} {} {}", a, op, b),
                "fix it");
  return Value::integer(result);
}

Value float_result(std::string_view op, double a, double b, const Budget& budget) {
  const auto what = [&] { return fmt::format("{} {} {}", a, op, b); };
  if (op != "+" && op != "-" && op != "*") {
    if (b == 0) budget.fail("divisors must not be 0", what(), "fix it");
    if (op != "/") budget.fail(fmt::format("'{}' accepts only integers here", op), "floats", "rewrite it");
  }
  const double result = op == "+" ? a + b : op == "-" ? a - b : op == "*" ? a * b : a / b;
  if (std::isnan(result)) budget.fail("floats must be numbers", what(), "fix it");
  return {result};
}

/// left + right for strings. If one is safe, the other is escaped.
Value concatenated(const Value& left, const Value& right, Budget& budget) {
  budget.spend(left.text()->size() + right.text()->size());
  if (left.is_safe() == right.is_safe()) return Value::like(left, *left.text() + *right.text());
  return Value::safe((left.is_safe() ? *left.text() : escaped(*left.text(), budget)) +
                     (right.is_safe() ? *right.text() : escaped(*right.text(), budget)));
}

std::string repeated(const std::string& text, std::int64_t times, Budget& budget) {
  std::string result;
  if (times <= 0 || text.empty()) return result;
  budget.spend(static_cast<std::size_t>(
      std::min<std::uint64_t>(static_cast<std::uint64_t>(times), std::uint64_t{1} << 40) * text.size()));
  for (std::int64_t i = 0; i < times; ++i) result += text;
  return result;
}

/// The order of the first items that differ, else of the lengths.
int order_of_items(const List& left, const List& right, std::string_view op, Budget& budget) {
  const std::size_t size = std::min(left.items.size(), right.items.size());
  for (std::size_t i = 0; i < size; ++i)
    if (!equal(left.items[i], right.items[i], budget))
      return order(left.items[i], right.items[i], op, budget);
  return left.items.size() < right.items.size() ? -1 : left.items.size() > right.items.size() ? 1 : 0;
}

}  // namespace

int order(const Value& left, const Value& right, std::string_view op, Budget& budget) {
  budget.spend(kStep);
  if (left.is_number() && right.is_number()) return order_of_numbers(left, right);
  if (left.list() != nullptr && right.list() != nullptr && left.list()->is_data() &&
      left.list()->kind == right.list()->kind)
    return order_of_items(*left.list(), *right.list(), op, budget);
  if (left.text() == nullptr || right.text() == nullptr) reject_operands(op, left, right, budget);
  budget.spend(std::min(left.text()->size(), right.text()->size()));
  return left.text()->compare(*right.text());
}

namespace {

/// Whether a generator has an item equal to `part`; consumes the items up to it.
bool consume_until(const Value& part, const List& all, Budget& budget) {
  const std::size_t consumed = all.num_consumed(budget);
  for (std::size_t i = consumed; i < all.items.size(); ++i)
    if (equal(part, all.items[i], budget)) {
      all.consume(i + 1, budget);
      return true;
    }
  all.consume(all.items.size(), budget);
  return false;
}

bool contains(const Value& part, const Value& all, Budget& budget) {
  if (const std::string* text = all.text()) {
    if (part.text() == nullptr) reject_operands("in", part, all, budget);
    budget.spend(text->size() + part.text()->size());
    return memmem(text->data(), text->size(), part.text()->data(), part.text()->size()) != nullptr ||
           part.text()->empty();
  }
  if (const Mapping* mapping = all.mapping()) {
    budget.spend(mapping->items.size());
    return part.text() != nullptr && mapping->find(*part.text()) != nullptr;
  }
  if (all.is_undefined()) return false;
  if (all.list() == nullptr) reject_operands("in", part, all, budget);
  if (all.list()->kind == ListKind::kGenerator) return consume_until(part, *all.list(), budget);
  return std::ranges::any_of(all.list()->items, [&](const Value& each) { return equal(part, each, budget); });
}

/// loop.name
Value loop_attribute(Loop& loop, const std::string& name, const Budget& budget) {
  if (!loop.fetch_next || budget.lazy_depth > 0)
    budget.fail(fmt::format("loop.{} must be read inside its loop, and not by a filter", name), "it",
                "write the template without it");
  const auto at = [&](std::size_t i) {
    return loop.has_item(i) ? loop.items[i] : Value::undefined("loop." + name);
  };
  const auto index = static_cast<std::int64_t>(loop.index);
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "first") return {index == 0};
  if (name == "last") return {!loop.has_item(loop.index + 1)};
  if (name == "previtem") return index > 0 ? at(loop.index - 1) : Value::undefined("loop." + name);
  if (name == "nextitem") return at(loop.index + 1);
  if (name == "depth") return Value::integer(1);  // the depth of recursive loops, which are not supported
  if (name == "depth0") return Value::integer(0);
  if (name == "revindex" || name == "revindex0" || name == "length") {
    while (loop.fetch_next()) {
    }
    const auto length = static_cast<std::int64_t>(loop.items.size());
    return Value::integer(name == "length" ? length : length - index - (name == "revindex" ? 0 : 1));
  }
  budget.fail(fmt::format("loop.{} is not supported", name), "it", "write the template without it");
}

/// Whether Python's numbers have an attribute of this name.
bool is_number_attribute(std::string_view name) {
  static constexpr std::string_view kAll[] = {
      "real",     "imag",       "numerator", "denominator", "conjugate",  "as_integer_ratio", "bit_count",
      "to_bytes", "from_bytes", "hex",       "fromhex",     "bit_length", "is_integer"};
  return std::ranges::find(kAll, name) != std::end(kAll);
}

std::int64_t bound(const Value* given, std::int64_t fallback, std::int64_t least, std::int64_t most,
                   std::int64_t length, const Budget& budget) {
  if (given == nullptr || given->is_none()) return fallback;
  if (!given->is_integer()) budget.fail("bounds of a slice must be integers", given->kind(), "fix it");
  const std::int64_t at = given->integer();
  return std::clamp(at < 0 ? at + length : at, least, most);
}

}  // namespace

Value attribute(const Value& value, const std::string& name, Budget& budget) {
  if (value.is_undefined())
    budget.fail(fmt::format("the value before '.{}' must be defined", name), value.kind(),
                "fix the template or the data");
  if (name.starts_with("_"))
    budget.fail("names must not begin with _ in templates", fmt::format("'{}'", name), "use another name");
  if (const auto* space = value.as<Namespace*>()) {
    if (budget.lazy_depth > 0)
      budget.fail("filters must not read a namespace, which may change before Jinja reads it", "." + name,
                  "read it outside the filter");
    const auto found = (*space)->items.find(name);
    return found != (*space)->items.end() ? found->second : Value::undefined(name);
  }
  if (const auto* loop = value.as<std::shared_ptr<Loop>>()) return loop_attribute(**loop, name, budget);
  if (value.list() != nullptr && !value.list()->is_data())
    budget.fail(fmt::format("'.{}' of {} is not supported", name, value.kind()), "it", "make a list of it");
  if (is_method(value, name))
    budget.fail(fmt::format("'.{}' is a method of {} and must be called", name, value.kind()),
                "its name alone", fmt::format("write ['{}'] for a key of that name", name));
  if (value.is_number() && is_number_attribute(name))
    budget.fail(fmt::format("'.{}' of {} is not supported", name, value.kind()), "it",
                "write the template without it");
  if (const Mapping* mapping = value.mapping()) {
    budget.spend(mapping->items.size());
    if (const Value* found = mapping->find(name)) return *found;
  }
  return Value::undefined(name);
}

Value item(const Value& value, const Value& key, Budget& budget) {
  if (value.is_undefined())
    budget.fail(fmt::format("the value before [{}] must be defined", text_of(key, budget).substr(0, 40)),
                value.kind(), "fix the template or the data");
  if (key.is_integer() && (value.list() != nullptr || value.text() != nullptr)) {
    if (value.list() != nullptr && !value.list()->is_indexable()) reject_operands("[]", value, key, budget);
    const std::vector<Value> copied =
        value.list() != nullptr ? std::vector<Value>() : items_of(value, budget);
    const std::vector<Value>& items = value.list() != nullptr ? value.list()->items : copied;
    const auto length = static_cast<std::int64_t>(items.size());
    const std::int64_t at = key.integer() < 0 ? key.integer() + length : key.integer();
    if (at < 0 || at >= length) return Value::undefined(fmt::format("[{}]", at));
    const Value& found = items[static_cast<std::size_t>(at)];
    return value.is_safe() ? Value::safe(*found.text()) : found;
  }
  if (key.text() == nullptr) return Value::undefined("item");
  if (const Mapping* mapping = value.mapping()) {
    budget.spend(mapping->items.size());
    if (const Value* found = mapping->find(*key.text())) return *found;
  }
  return attribute(value, *key.text(), budget);
}

Value slice(const Value& value, const Value* first, const Value* stop, const Value* step, Budget& budget) {
  if ((value.list() == nullptr || !value.list()->is_indexable()) && value.text() == nullptr)
    budget.fail("a slice must be of a list or a string", value.kind(), "fix the template or the data");
  const std::vector<Value> items = items_of(value, budget);
  const auto length = static_cast<std::int64_t>(items.size());
  const std::int64_t by = bound(step, 1, -(length + 1), length + 1, 0, budget);
  if (by == 0) budget.fail("the step of a slice must not be 0", "0", "fix it");
  const bool up = by > 0;
  const std::int64_t from =
      bound(first, up ? 0 : length - 1, up ? 0 : -1, up ? length : length - 1, length, budget);
  const std::int64_t to =
      bound(stop, up ? length : -1, up ? 0 : -1, up ? length : length - 1, length, budget);
  std::vector<Value> selected;
  for (std::int64_t i = from; up ? i < to : i > to; i += by)
    selected.push_back(items[static_cast<std::size_t>(i)]);
  if (value.list() != nullptr) return Value::list(std::move(selected), budget, value.list()->kind);
  std::string text;
  for (const Value& c : selected) text += *c.text();
  return Value::like(value, std::move(text));
}

Value binary(std::string_view op, const Value& left, const Value& right, Budget& budget) {
  if (left.is_number() && right.is_number()) {
    if (op != "/" && left.is_integer() && right.is_integer())
      return integer_result(op, left.integer(), right.integer(), budget);
    constexpr double kExact = 9007199254740992.0;  // 2^53
    if (left.is_integer() && right.is_integer() &&
        std::max(std::abs(left.number()), std::abs(right.number())) >= kExact)
      budget.fail("integers that '/' divides must be below 2^53 here", "others", "use //");
    return float_result(op, left.number(), right.number(), budget);
  }
  if (op == "+" && left.text() != nullptr && right.text() != nullptr)
    return concatenated(left, right, budget);
  if (op == "+" && left.list() != nullptr && right.list() != nullptr && left.list()->is_data() &&
      left.list()->kind == right.list()->kind) {
    std::vector<Value> items = items_of(left, budget);
    const std::vector<Value> more = items_of(right, budget);
    items.insert(items.end(), more.begin(), more.end());
    return Value::list(std::move(items), budget, left.list()->kind);
  }
  if (op == "*" && left.text() != nullptr && right.is_integer())
    return Value::like(left, repeated(*left.text(), right.integer(), budget));
  if (op == "*" && right.text() != nullptr && left.is_integer())
    return Value::like(right, repeated(*right.text(), left.integer(), budget));
  reject_operands(op, left, right, budget);
}

bool compare(std::string_view op, const Value& left, const Value& right, Budget& budget) {
  if (op == "==") return equal(left, right, budget);
  if (op == "!=") return !equal(left, right, budget);
  if (op == "in") return contains(left, right, budget);
  if (op == "not in") return !contains(left, right, budget);
  const int sign = order(left, right, op, budget);
  if (op == "<") return sign < 0;
  if (op == "<=") return sign <= 0;
  return op == ">" ? sign > 0 : sign >= 0;
}

Value range(Arguments& all) {
  constexpr std::int64_t kMaxRange = 100'000;
  Budget& budget = all.budget;
  std::int64_t first = all.integer(0, "", 0);
  std::int64_t stop = all.integer(1, "", 0);
  const std::int64_t step = all.integer(2, "", 1);
  if (all.values.size() == 1) stop = std::exchange(first, 0);
  all.check_all_read();
  if (all.values.empty() || step == 0)
    budget.fail("range must have one to three integers, the step not 0", "others", "fix it");
  const __int128 length = (static_cast<__int128>(stop) - first + step - (step > 0 ? 1 : -1)) / step;
  if (length > kMaxRange)
    budget.fail(fmt::format("a range must have at most {} numbers", kMaxRange), "more", "fix it");
  std::vector<Value> numbers;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(length); ++i)
    numbers.push_back(Value::integer(first + i * step));
  budget.spend(2 * kStep * numbers.size());
  return Value::list(std::move(numbers), budget, ListKind::kRange);
}

}  // namespace colonnade::chat_template
