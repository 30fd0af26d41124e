// See library.h: arguments, and filters of lists and mappings, as Jinja has them.
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
  if (const List* list = value.list(); list != nullptr && list->form != Form::kOnce)
    return Value::integer(static_cast<std::int64_t>(list->items.size()));
  if (const Mapping* mapping = value.mapping())
    return Value::integer(static_cast<std::int64_t>(mapping->items.size()));
  a.fail("it must have a length", value);
}

Value otherwise(const Value& value, Arguments& a) {
  const Value* instead = a.get(0, "default_value");
  const Value* false_too = a.get(1, "boolean");
  const bool take = value.is_undefined() || (false_too != nullptr && false_too->truth() && !value.truth());
  if (!take) return value;
  return instead != nullptr ? *instead : Value::text("");
}

Value end_of(const Value& value, Arguments& a, bool front) {
  const List* list = value.list();
  const bool once = list != nullptr && list->form == Form::kOnce;
  if (once && !front) a.fail("it must be a list or a string", value);
  if (once) {
    const std::size_t gone = list->gone(a.budget);
    if (gone == list->items.size()) return Value::undefined(a.of());
    list->take(gone + 1, a.budget);
    return list->items[gone];
  }
  const std::vector<Value> items = items_of(value, a.budget);
  if (items.empty()) return Value::undefined(a.of());
  if (front) return items.front();
  return value.is_safe() ? Value::safe(*items.back().text()) : items.back();
}

Value items(const Value& value, Arguments& a) {
  if (value.is_undefined()) return Value::list({}, a.budget, Form::kOnce);
  if (value.mapping() == nullptr) a.fail("it must be a mapping", value);
  return Value::list(pairs_of(*value.mapping(), a.budget), a.budget, Form::kOnce);
}

Value reverse(const Value& value, Arguments& a) {
  std::vector<Value> all = items_of(value, a.budget);
  std::ranges::reverse(all);
  if (value.text() == nullptr) {
    const bool once = value.list() != nullptr && value.list()->form == Form::kOnce;
    return Value::list(std::move(all), a.budget, once ? Form::kList : Form::kOnce);
  }
  std::string text;
  for (const Value& c : all) text += *c.text();
  return Value::like(value, std::move(text));
}

/// What select and map go through: of what is false, nothing.
std::vector<Value> items_if_any(const Value& value, Budget& budget) {
  return value.truth() ? items_of(value, budget) : std::vector<Value>();
}

/// select and its kin: items for which a test holds (of an attribute), or does not.
Value select(const Value& value, Arguments& a, bool by_attribute, bool wanted) {
  const std::size_t at = by_attribute ? 1 : 0;
  const Value* path = by_attribute ? &a.need(0, "") : nullptr;
  const bool by_truth = a.values.size() <= at;
  const std::string name = a.text(at, "", "");
  const Arguments rest = by_truth ? Arguments(a.budget, "") : a.rest(at + 1, name);
  const Later later(a.budget);
  std::vector<Value> chosen;
  for (const Value& each : items_if_any(value, a.budget)) {
    const Value looked_at = path != nullptr ? named_attribute(each, *path, a) : each;
    Arguments given = rest;
    if ((by_truth ? looked_at.truth() : test(name, looked_at, given)) == wanted) chosen.push_back(each);
  }
  return Value::list(std::move(chosen), a.budget, Form::kOnce);
}

Value map(const Value& value, Arguments& a) {
  const Value* path = a.values.empty() ? a.get(0, "attribute") : nullptr;
  const Value* instead = path != nullptr ? a.get(1, "default") : nullptr;
  const std::string name = path == nullptr ? a.text(0, "", "") : "";
  if (path == nullptr && name.empty()) a.budget.fail("map needs a filter or an attribute", "none", "give it");
  const Arguments rest = path == nullptr ? a.rest(1, name) : Arguments(a.budget, "");
  const Later later(a.budget);
  std::vector<Value> mapped;
  for (const Value& each : items_if_any(value, a.budget)) {
    Arguments given = rest;
    mapped.push_back(path != nullptr ? named_attribute(each, *path, a, instead) : filter(name, each, given));
  }
  return Value::list(std::move(mapped), a.budget, Form::kOnce);
}

/// An item's number where Python's str.isdigit() says so of `name`, or the name.
Value step_of(const std::string& name, const Budget& budget) {
  bool is_number = !name.empty();
  tokenizers::for_each_char(name, [&](char32_t c, std::string_view) {
    const int type = u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_NUMERIC_TYPE);
    is_number = is_number && (type == U_NT_DECIMAL || type == U_NT_DIGIT);
  });
  if (!is_number) return Value::text(name);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size())
    budget.fail("an item's number must have digits of ASCII and fit 64 bits here", fmt::format("'{}'", name),
                "write it so");
  return Value::integer(number);
}

Value listed(const Value& value, Arguments& a) { return Value::list(items_of(value, a.budget), a.budget); }

const Filters& list_filters() {
  static const Filters kAll = {
      {"length", length},
      {"count", length},
      {"default", otherwise},
      {"d", otherwise},
      {"first", [](const Value& v, Arguments& a) { return end_of(v, a, true); }},
      {"last", [](const Value& v, Arguments& a) { return end_of(v, a, false); }},
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
    pairs.push_back(Value::list({Value::text(key), each}, budget, Form::kTuple));
  budget.spend(16 * pairs.size());
  return pairs;
}

Value named_attribute(const Value& value, const Value& path, Arguments& a, const Value* instead) {
  const auto there = [&](Value found) {
    return found.is_undefined() && instead != nullptr && !instead->is_none() ? *instead : found;
  };
  if (path.is_none()) return value;
  if (path.is_integer()) return there(item(value, path, a.budget));
  if (path.text() == nullptr) a.fail("an attribute must be a name", path);
  Value at = value;
  std::string_view rest = *path.text();
  while (true) {
    const std::size_t dot = rest.find('.');
    at = there(item(at, step_of(std::string(rest.substr(0, dot)), a.budget), a.budget));
    if (dot == std::string_view::npos) return at;
    rest.remove_prefix(dot + 1);
  }
}

const Value* Arguments::get(std::size_t i, std::string_view name) {
  if (i < values.size()) {
    read_ = std::max(read_, i + 1);
    return &values[i];
  }
  for (const auto& [key, value] : named)
    if (key == name) {
      read_names_.push_back(name);
      return &value;
    }
  return nullptr;
}

const Value& Arguments::need(std::size_t i, std::string_view name) {
  const Value* value = get(i, name);
  if (value == nullptr)
    budget.fail(fmt::format("{} needs {} or more arguments", of_, i + 1), "fewer", "give them");
  return *value;
}

std::string Arguments::text(std::size_t i, std::string_view name, const std::string& otherwise) {
  const Value* value = get(i, name);
  if (value == nullptr) return otherwise;
  if (value->text() == nullptr) fail("it must be a string", *value);
  return *value->text();
}

std::int64_t Arguments::integer(std::size_t i, std::string_view name, std::int64_t otherwise) {
  const Value* value = get(i, name);
  if (value == nullptr) return otherwise;
  if (!value->is_integer()) fail("it must be an integer", *value);
  return value->integer();
}

Arguments Arguments::rest(std::size_t first, const std::string& name) {
  Arguments rest(budget, name);
  for (std::size_t i = first; i < values.size(); ++i) rest.values.push_back(values[i]);
  rest.named = named;
  read_ = values.size();
  for (const auto& each : named) read_names_.push_back(each.first);
  return rest;
}

void Arguments::finish() const {
  if (read_ < values.size())
    budget.fail(fmt::format("{} takes at most {} such arguments here", of_, read_),
                fmt::format("{}", values.size()), "leave the others out");
  for (const auto& [key, value] : named)
    if (std::ranges::find(read_names_, key) == read_names_.end())
      budget.fail(fmt::format("{} takes no argument '{}' here", of_, key), "it", "leave it out");
}

Value filter(std::string_view name, const Value& value, Arguments& arguments) {
  for (const Filters* some : {&list_filters(), &text_filters(), &number_filters(), &order_filters()}) {
    const auto found = some->find(name);
    if (found == some->end()) continue;
    Value result = found->second(value, arguments);
    arguments.finish();
    return result;
  }
  arguments.budget.fail(fmt::format("the filter '{}' is not understood here", name), "it",
                        "write the template without it");
}

}  // namespace colonnade::chat_template
