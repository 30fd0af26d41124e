// See library.h: Jinja's filters that compare items.
#include <algorithm>
#include <cmath>
#include <set>

#include "colonnade/chat_template/filters.h"
#include "colonnade/chat_template/text_methods.h"

namespace colonnade::chat_template {
namespace {

bool is_true(const Value* given) { return given != nullptr && given->is_truthy(); }

/// The sort key of an item.
Value key_of(const Value& item, const Value* path, bool with_case, Arguments& a) {
  Value key = path != nullptr ? named_attribute(item, *path, a) : item;
  if (with_case || key.text() == nullptr) return key;
  a.budget.spend(4 * key.text()->size());
  return Value::text(cased(*key.text(), Case::kLower));
}

struct Keyed {
  std::vector<Value> keys;
  Value item;
  bool is_single = false;  ///< whether its one key is compared by < even with an equal key, as in Python
};

/// Stable sort by the first keys that differ.
std::vector<Value> sorted(std::vector<Keyed> all, bool descending, Arguments& a) {
  const auto is_less = [&](const Keyed& left, const Keyed& right) {
    if (left.is_single) return order(left.keys[0], right.keys[0], "<", a.budget) < 0;
    for (std::size_t i = 0; i < left.keys.size(); ++i)
      if (!equal(left.keys[i], right.keys[i], a.budget))
        return order(left.keys[i], right.keys[i], "<", a.budget) < 0;
    return false;
  };
  std::ranges::stable_sort(all, [&](const Keyed& left, const Keyed& right) {
    return descending ? is_less(right, left) : is_less(left, right);
  });
  std::vector<Value> items;
  for (Keyed& each : all) items.push_back(std::move(each.item));
  return items;
}

/// The argument `reverse`.
bool is_descending(const Value* reverse, Arguments& a) {
  if (reverse != nullptr && !reverse->is_integer()) a.fail("reverse must be true or false", *reverse);
  return is_true(reverse);
}

/// The comma-separated paths of an attribute argument.
std::vector<Value> paths_of(const Value* given) {
  if (given == nullptr || given->text() == nullptr) return {given != nullptr ? *given : Value::none()};
  std::vector<Value> paths;
  std::string_view rest = *given->text();
  for (std::size_t comma = rest.find(','); comma != std::string_view::npos; comma = rest.find(',')) {
    paths.push_back(Value::text(std::string(rest.substr(0, comma))));
    rest.remove_prefix(comma + 1);
  }
  paths.push_back(Value::text(std::string(rest)));
  return paths;
}

Value sort(const Value& value, Arguments& a) {
  const bool descending = is_descending(a.get(0, "reverse"), a);
  const bool with_case = is_true(a.get(1, "case_sensitive"));
  const std::vector<Value> paths = paths_of(a.get(2, "attribute"));
  std::vector<Keyed> all;
  for (const Value& each : items_of(value, a.budget)) {
    Keyed keyed{{}, each};
    for (const Value& path : paths) keyed.keys.push_back(key_of(each, &path, with_case, a));
    a.budget.spend(2 * kStep * paths.size());
    all.push_back(std::move(keyed));
  }
  return Value::list(sorted(std::move(all), descending, a), a.budget);
}

Value dict_sort(const Value& value, Arguments& a) {
  const bool with_case = is_true(a.get(0, "case_sensitive"));
  const std::string by = a.text(1, "by", "key");
  const bool descending = is_descending(a.get(2, "reverse"), a);
  if (value.mapping() == nullptr) a.fail("it must be a mapping", value);
  if (by != "key" && by != "value")
    a.budget.fail("dictsort: 'by' must be key or value", fmt::format("'{}'", by), "fix it");
  const Value at = Value::integer(by == "key" ? 0 : 1);
  std::vector<Keyed> all;
  for (const Value& pair : pairs_of(*value.mapping(), a.budget))
    all.push_back({{key_of(pair, &at, with_case, a)}, pair, true});
  return Value::list(sorted(std::move(all), descending, a), a.budget);
}

Value min_or_max(const Value& value, Arguments& a, int sign) {
  const bool with_case = is_true(a.get(0, "case_sensitive"));
  const Value* path = a.get(1, "attribute");
  const std::vector<Value> items = items_of(value, a.budget);
  if (items.empty()) return Value::undefined(a.callee());
  std::size_t best = 0;
  Value best_key = key_of(items[0], path, with_case, a);
  for (std::size_t i = 1; i < items.size(); ++i) {
    Value key = key_of(items[i], path, with_case, a);
    if (order(key, best_key, sign < 0 ? "<" : ">", a.budget) * sign <= 0) continue;
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}

/// A string that is equal for values that are the same dict key in Python.
std::string hash_of(const Value& key, Arguments& a) {
  if (key.text() != nullptr) return "'" + *key.text();
  if (key.is_none() || key.is_undefined()) return key.is_none() ? "none" : "undefined";
  if (!key.is_number()) a.fail("items must be strings, numbers or none here", key);
  constexpr double kBeyondIntegers = 9223372036854775808.0;  // 2^63
  if (key.is_integer()) return fmt::format("{}", key.integer());
  const double number = key.number();
  if (number == std::trunc(number) && std::abs(number) < kBeyondIntegers)
    return fmt::format("{}", static_cast<std::int64_t>(number));
  return fmt::format("{}", number);
}

Value unique(const Value& value, Arguments& a) {
  const bool with_case = is_true(a.get(0, "case_sensitive"));
  const Value* path = a.get(1, "attribute");
  const LazyScope lazy(a.budget);
  std::vector<Value> first;
  std::set<std::string> seen;
  for (const Value& each : items_of(value, a.budget)) {
    const std::string key = hash_of(key_of(each, path, with_case, a), a);
    a.budget.spend(kStep + key.size());
    if (seen.insert(key).second) first.push_back(each);
  }
  return Value::list(std::move(first), a.budget, ListKind::kGenerator);
}

}  // namespace

const Filters& order_filters() {
  static const Filters kAll = {
      {"sort", sort},
      {"dictsort", dict_sort},
      {"min", [](const Value& v, Arguments& a) { return min_or_max(v, a, -1); }},
      {"max", [](const Value& v, Arguments& a) { return min_or_max(v, a, 1); }},
      {"unique", unique},
  };
  return kAll;
}

}  // namespace colonnade::chat_template
