// See library.h: arguments, and Jinja's filters of lists and mappings.
#include "colonnade/chat_template/filters.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <charconv>

#include "colonnade/tokenizers/unicode.h"

namespace colonnade::chat_template {
namespace {

Value length(const Value& value, Arguments& a) {
  if (value.is_undefined()) return Value::integer(0);
  if (const std::string* text = value.text()) return Value::integer(tokenizers::count_chars(*text));
  if (const List* list = value.list(); list != nullptr && list->kind != ListKind::kGenerator)
    return Value::integer(static_cast<std::int64_t>(list->items.size()));
  if (const Mapping* mapping = value.mapping())
    return Value::integer(static_cast<std::int64_t>(mapping->items.size()));
  a.fail("it must have a length", value);
}

/// The filter `default`.
Value default_filter(const Value& value, Arguments& a) {
  const Value* instead = a.get(0, "default_value");
  const Value* falsy_too = a.get(1, "boolean");
  const bool replace =
      value.is_undefined() || (falsy_too != nullptr && falsy_too->is_truthy() && !value.is_truthy());
  if (!replace) return value;
  return instead != nullptr ? *instead : Value::text("");
}

/// The filters `first` and `last`.
Value first_or_last(const Value& value, Arguments& a, bool front) {
  const List* list = value.list();
  const bool is_generator = list != nullptr && list->kind == ListKind::kGenerator;
  if (is_generator && !front) a.fail("it must be a list or a string", value);
  if (is_generator) {
    const std::size_t consumed = list->num_consumed(a.budget);
    if (consumed == list->items.size()) return Value::undefined(a.callee());
    list->consume(consumed + 1, a.budget);
    return list->items[consumed];
  }
  const std::vector<Value> items = items_of(value, a.budget);
  if (items.empty()) return Value::undefined(a.callee());
  if (front) return items.front();
  return value.is_safe() ? Value::safe(*items.back().text()) : items.back();
}

Value items(const Value& value, Arguments& a) {
  if (value.is_undefined()) return Value::list({}, a.budget, ListKind::kGenerator);
  if (value.mapping() == nullptr) a.fail("it must be a mapping", value);
  return Value::list(pairs_of(*value.mapping(), a.budget), a.budget, ListKind::kGenerator);
}

Value reverse(const Value& value, Arguments& a) {
  std::vector<Value> all = items_of(value, a.budget);
  std::ranges::reverse(all);
  if (value.text() == nullptr) {
    const bool is_generator = value.list() != nullptr && value.list()->kind == ListKind::kGenerator;
    return Value::list(std::move(all), a.budget, is_generator ? ListKind::kList : ListKind::kGenerator);
  }
  std::string text;
  for (const Value& c : all) text += *c.text();
  return Value::like(value, std::move(text));
}

/// The items that select and map process: none of a falsy value.
std::vector<Value> items_if_truthy(const Value& value, Budget& budget) {
  return value.is_truthy() ? items_of(value, budget) : std::vector<Value>();
}

/// select, reject, selectattr and rejectattr: items whose value or attribute passes a test, or fails it.
Value select(const Value& value, Arguments& a, bool by_attribute, bool wanted) {
  const std::size_t at = by_attribute ? 1 : 0;
  const Value* path = by_attribute ? &a.require(0, "") : nullptr;
  const bool by_truth = a.values.size() <= at;
  const std::string name = a.text(at, "", "");
  const Arguments rest = by_truth ? Arguments(a.budget, "") : a.rest(at + 1, name);
  const LazyScope lazy(a.budget);
  std::vector<Value> chosen;
  for (const Value& each : items_if_truthy(value, a.budget)) {
    const Value tested = path != nullptr ? named_attribute(each, *path, a) : each;
    Arguments given = rest;
    if ((by_truth ? tested.is_truthy() : test(name, tested, given)) == wanted) chosen.push_back(each);
  }
  return Value::list(std::move(chosen), a.budget, ListKind::kGenerator);
}

Value map(const Value& value, Arguments& a) {
  const Value* path = a.values.empty() ? a.get(0, "attribute") : nullptr;
  const Value* instead = path != nullptr ? a.get(1, "default") : nullptr;
  const std::string name = path == nullptr ? a.text(0, "", "") : "";
  if (path == nullptr && name.empty())
    a.budget.fail("map requires a filter or an attribute", "none", "give one");
  const Arguments rest = path == nullptr ? a.rest(1, name) : Arguments(a.budget, "");
  const LazyScope lazy(a.budget);
  std::vector<Value> mapped;
  for (const Value& each : items_if_truthy(value, a.budget)) {
    Arguments given = rest;
    mapped.push_back(path != nullptr ? named_attribute(each, *path, a, instead) : filter(name, each, given));
  }
  return Value::list(std::move(mapped), a.budget, ListKind::kGenerator);
}

/// One step of a path: an index if Python's str.isdigit() holds for `name`, else the name.
Value path_step(const std::string& name, const Budget& budget) {
  bool is_number = !name.empty();
  tokenizers::for_each_char(name, [&](char32_t c, std::string_view) {
    const int type = u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_NUMERIC_TYPE);
    is_number = is_number && (type == U_NT_DECIMAL || type == U_NT_DIGIT);
  });
  if (!is_number) return Value::text(name);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size())
    budget.fail("an item's index must have ASCII digits and fit 64 bits", fmt::format("'{}'", name),
                "write it in ASCII digits");
  return Value::integer(number);
}

Value listed(const Value& value, Arguments& a) { return Value::list(items_of(value, a.budget), a.budget); }

const Filters& list_filters() {
  static const Filters kAll = {
      {"length", length},
      {"count", length},
      {"default", default_filter},
      {"d", default_filter},
      {"first", [](const Value& v, Arguments& a) { return first_or_last(v, a, true); }},
      {"last", [](const Value& v, Arguments& a) { return first_or_last(v, a, false); }},
      {"list", listed},
      {"items", items},
      {"reverse", reverse},
      {"select", [](const Value& v, Arguments& a) { return select(v, a, false, true); }},
      {"reject", [](const Value& v, Arguments& a) { return select(v, a, false, false); }},
      {"selectattr", [](const Value& v, Arguments& a) { return select(v, a, true, true); }},
      {"rejectattr", [](const Value& v, Arguments& a) { return select(v, a, true, false); }},
      {"map", map},
  };
  return kAll;
}

}  // namespace

std::vector<Value> pairs_of(const Mapping& mapping, Budget& budget) {
  std::vector<Value> pairs;
  for (const auto& [key, each] : mapping.items)
    pairs.push_back(Value::list({Value::text(key), each}, budget, ListKind::kTuple));
  budget.spend(16 * pairs.size());
  return pairs;
}

Value named_attribute(const Value& value, const Value& path, Arguments& a, const Value* instead) {
  const auto or_instead = [&](Value found) {
    return found.is_undefined() && instead != nullptr && !instead->is_none() ? *instead : found;
  };
  if (path.is_none()) return value;
  if (path.is_integer()) return or_instead(item(value, path, a.budget));
  if (path.text() == nullptr) a.fail("an attribute must be a name", path);
  Value at = value;
  std::string_view rest = *path.text();
  while (true) {
    const std::size_t dot = rest.find('.');
    at = or_instead(item(at, path_step(std::string(rest.substr(0, dot)), a.budget), a.budget));
    if (dot == std::string_view::npos) return at;
    rest.remove_prefix(dot + 1);
  }
}

const Value* Arguments::get(std::size_t i, std::string_view name) {
  if (i < values.size()) {
    read_ = std::max(read_, i + 1);
    return &values[i];
  }
  for (const auto& [key, value] : kwargs)
    if (key == name) {
      read_names_.push_back(name);
      return &value;
    }
  return nullptr;
}

const Value& Arguments::require(std::size_t i, std::string_view name) {
  const Value* value = get(i, name);
  if (value == nullptr)
    budget.fail(fmt::format("{} requires {} or more arguments", callee_, i + 1), "fewer", "give them");
  return *value;
}

std::string Arguments::text(std::size_t i, std::string_view name, const std::string& fallback) {
  const Value* value = get(i, name);
  if (value == nullptr) return fallback;
  if (value->text() == nullptr) fail("it must be a string", *value);
  return *value->text();
}

std::int64_t Arguments::integer(std::size_t i, std::string_view name, std::int64_t fallback) {
  const Value* value = get(i, name);
  if (value == nullptr) return fallback;
  if (!value->is_integer()) fail("it must be an integer", *value);
  return value->integer();
}

Arguments Arguments::rest(std::size_t first, const std::string& name) {
  Arguments rest(budget, name);
  for (std::size_t i = first; i < values.size(); ++i) rest.values.push_back(values[i]);
  rest.kwargs = kwargs;
  read_ = values.size();
  for (const auto& each : kwargs) read_names_.push_back(each.first);
  return rest;
}

void Arguments::check_all_read() const {
  if (read_ < values.size())
    budget.fail(fmt::format("{} accepts at most {} positional arguments here", callee_, read_),
                fmt::format("{}", values.size()), "remove the others");
  for (const auto& [key, value] : kwargs)
    if (std::ranges::find(read_names_, key) == read_names_.end())
      budget.fail(fmt::format("{} accepts no argument '{}' here", callee_, key), "it", "remove it");
}

Value filter(std::string_view name, const Value& value, Arguments& arguments) {
  for (const Filters* table : {&list_filters(), &text_filters(), &number_filters(), &order_filters()}) {
    const auto found = table->find(name);
    if (found == table->end()) continue;
    Value result = found->second(value, arguments);
    arguments.check_all_read();
    return result;
  }
  arguments.budget.fail(fmt::format("the filter '{}' is not supported", name), "it",
                        "write the template without it");
}

}  // namespace colonnade::chat_template
