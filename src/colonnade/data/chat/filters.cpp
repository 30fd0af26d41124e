// See library.h: arguments, filters and tests, as Jinja has them; tojson is Transformers'.
#include <unicode/uchar.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "colonnade/data/chat/library.h"
#include "colonnade/data/chat/text_methods.h"
#include "colonnade/data/tokenizers/unicode.h"

namespace colonnade::data::chat {
namespace {

Value length(const Value& value, Arguments& a) {
  if (value.is_undefined()) return Value::integer(0);
  if (const std::string* text = value.text()) return Value::integer(count_chars(*text));
  if (const List* list = value.list(); list != nullptr && !list->lazy)
    return Value::integer(static_cast<std::int64_t>(list->items.size()));
  if (const Mapping* mapping = value.mapping())
    return Value::integer(static_cast<std::int64_t>(mapping->items.size()));
  a.fail("it must have a length", value);
}

Value trim(const Value& value, Arguments& a) {
  const std::string text = text_of(value, a.budget);
  const Value* chars = a.get(0, "chars");
  const bool given = chars != nullptr && !chars->is_none();
  if (given && chars->text() == nullptr) a.fail("characters must be a string", *chars);
  if (given) a.budget.spend(text.size() * (1 + chars->text()->size() / 16));
  return Value::text(std::string(stripped(text, given ? chars->text() : nullptr, true, true)));
}

Value to_json(const Value& value, Arguments& a) {
  JsonStyle style;
  const Value* ascii = a.get(0, "ensure_ascii");
  style.ascii = ascii != nullptr && ascii->truth();
  const Value* indent = a.get(1, "indent");
  if (indent != nullptr && !indent->is_none()) {
    if (!indent->is_integer() || indent->integer() < 0 || indent->integer() > 64)
      a.fail("indent must be an integer from 0 to 64", *indent);
    style.indent = static_cast<int>(indent->integer());
    style.between = std::string(",");
  }
  const Value* separators = a.get(2, "separators");
  if (separators != nullptr && !separators->is_none()) {
    const List* both = separators->list();
    if (both == nullptr || both->items.size() != 2 || both->items[0].text() == nullptr ||
        both->items[1].text() == nullptr)
      a.fail("separators must be two strings", *separators);
    style.between = *both->items[0].text();
    style.colon = *both->items[1].text();
  }
  const Value* sorted = a.get(3, "sort_keys");
  style.sorted = sorted != nullptr && sorted->truth();
  return Value::text(json_of(value, style, a.budget));
}

Value otherwise(const Value& value, Arguments& a) {
  const Value* instead = a.get(0, "default_value");
  const Value* false_too = a.get(1, "boolean");
  const bool take = value.is_undefined() || (false_too != nullptr && false_too->truth() && !value.truth());
  if (!take) return value;
  return instead != nullptr ? *instead : Value::text("");
}

Value named_attribute(const Value& value, const Value& path, Arguments& a) {
  if (path.is_integer()) return item(value, path, a.budget);
  if (path.text() == nullptr) a.fail("an attribute must be a name", path);
  Value at = value;
  std::string_view rest = *path.text();
  while (true) {
    const std::size_t dot = rest.find('.');
    const std::string name(rest.substr(0, dot));
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    const bool digits = error == std::errc() && end == name.data() + name.size();
    at = item(at, digits ? Value::integer(number) : Value::text(name), a.budget);
    if (dot == std::string_view::npos) return at;
    rest.remove_prefix(dot + 1);
  }
}

Value join(const Value& value, Arguments& a) {
  const std::string between = a.text(0, "d", "");
  const Value* path = a.get(1, "attribute");
  std::string text;
  bool first = true;
  for (const Value& each : items_of(value, a.budget)) {
    a.budget.spend(between.size());
    if (!std::exchange(first, false)) text += between;
    text += text_of(path != nullptr ? named_attribute(each, *path, a) : each, a.budget);
  }
  return Value::text(std::move(text));
}

Value end_of(const Value& value, Arguments& a, bool front) {
  if (!front && value.list() != nullptr && value.list()->lazy) a.fail("it must be a list or a string", value);
  const std::vector<Value> items = items_of(value, a.budget);
  if (items.empty()) return Value::undefined(a.of());
  return front ? items.front() : items.back();
}

/// Decimal digits of any script as those of ASCII, which is how Python's int() reads them.
std::string with_ascii_digits(std::string_view text) {
  std::string result;
  for_each_char(text, [&](char32_t c, std::string_view bytes) {
    const int digit = u_charDigitValue(static_cast<UChar32>(c));
    if (digit >= 0)
      result.push_back(static_cast<char>('0' + digit));
    else
      result += bytes;
  });
  return result;
}

Value to_integer(const Value& value, Arguments& a) {
  const std::int64_t instead = a.integer(0, "default", 0);
  if (value.is_integer()) return Value::integer(value.integer());
  if (const double* real = value.as<double>(); real != nullptr && *real > -9e18 && *real < 9e18)
    return Value::integer(static_cast<std::int64_t>(*real));
  if (value.text() == nullptr) return Value::integer(instead);
  const std::string text = with_ascii_digits(stripped(*value.text(), nullptr, true, true));
  const bool plus = text.starts_with('+') && !text.starts_with("+-");
  const std::string_view digits = std::string_view(text).substr(plus ? 1 : 0);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error == std::errc() && end == digits.data() + digits.size()) return Value::integer(number);
  if (!text.starts_with("+-") && digits.find_first_of("0123456789") != std::string_view::npos)
    a.fail("text of a number must be decimal digits of an integer here", value);
  return Value::integer(instead);
}

Value items(const Value& value, Arguments& a) {
  std::vector<Value> pairs;
  if (value.is_undefined()) return Value::list({}, a.budget, false, true);
  if (value.mapping() == nullptr) a.fail("it must be a mapping", value);
  for (const auto& [key, each] : value.mapping()->items)
    pairs.push_back(Value::list({Value::text(key), each}, a.budget, true));
  a.budget.spend(16 * pairs.size());
  return Value::list(std::move(pairs), a.budget);
}

Value reverse(const Value& value, Arguments& a) {
  if (value.text() == nullptr && value.list() == nullptr) a.fail("it must be a list or a string", value);
  std::vector<Value> all = items_of(value, a.budget);
  std::ranges::reverse(all);
  if (value.list() != nullptr) return Value::list(std::move(all), a.budget, false, true);
  std::string text;
  for (const Value& c : all) text += *c.text();
  return Value::text(std::move(text));
}

/// Arguments from `first` on, for a filter or test that another one calls.
Arguments rest_of(Arguments& a, std::size_t first, const std::string& name) {
  Arguments rest(a.budget, name);
  for (std::size_t i = first; const Value* value = a.get(i, ""); ++i) rest.values.push_back(*value);
  return rest;
}

/// select and its kin: items for which a test holds (of an attribute), or does not.
Value select(const Value& value, Arguments& a, bool by_attribute, bool wanted) {
  const std::size_t at = by_attribute ? 1 : 0;
  const Value* path = by_attribute ? &a.need(0, "") : nullptr;
  const std::string name = a.text(at, "", "");
  const Arguments rest = rest_of(a, at + 1, name);
  std::vector<Value> chosen;
  for (const Value& each : items_of(value, a.budget)) {
    const Value looked_at = path != nullptr ? named_attribute(each, *path, a) : each;
    Arguments given = rest;
    if ((name.empty() ? looked_at.truth() : test(name, looked_at, given)) == wanted) chosen.push_back(each);
  }
  return Value::list(std::move(chosen), a.budget, false, true);
}

Value map(const Value& value, Arguments& a) {
  const Value* path = a.get(std::string::npos, "attribute");
  const Value* instead = a.get(std::string::npos, "default");
  const std::string name = path == nullptr ? a.text(0, "", "") : "";
  if (path == nullptr && name.empty()) a.budget.fail("map needs a filter or an attribute", "none", "give it");
  const Arguments rest = rest_of(a, path == nullptr ? 1 : 0, name);
  std::vector<Value> mapped;
  for (const Value& each : items_of(value, a.budget)) {
    Arguments given = rest;
    Value result = path != nullptr ? named_attribute(each, *path, a) : filter(name, each, given);
    if (result.is_undefined() && instead != nullptr) result = *instead;
    mapped.push_back(std::move(result));
  }
  return Value::list(std::move(mapped), a.budget, false, true);
}

Value unique(const Value& value, Arguments& a) {
  std::vector<Value> first;
  std::set<std::string> seen;
  for (const Value& each : items_of(value, a.budget)) {
    if (each.text() == nullptr) a.fail("items must be strings here", each);
    a.budget.spend(kStep + 4 * each.text()->size());
    if (seen.insert(cased(*each.text(), Case::kLower)).second) first.push_back(each);
  }
  return Value::list(std::move(first), a.budget, false, true);
}

Value replace_filter(const Value& value, Arguments& a) {
  const std::string text = text_of(value, a.budget);
  const Value &old = a.need(0, "old"), &with = a.need(1, "new");
  if (old.text() == nullptr) a.fail("what is replaced must be a string", old);
  if (with.text() == nullptr) a.fail("what replaces must be a string", with);
  const Value* count = a.get(2, "count");
  const bool all = count == nullptr || count->is_none();
  return Value::text(
      replaced(text, *old.text(), *with.text(), all ? -1 : a.integer(2, "count", -1), a.budget));
}

Value with_case(const Value& value, Arguments& a, Case to) {
  return Value::text(cased(text_of(value, a.budget), to));
}

Value listed(const Value& value, Arguments& a) { return Value::list(items_of(value, a.budget), a.budget); }

using Filter = Value (*)(const Value&, Arguments&);

const std::map<std::string_view, Filter>& all_filters() {
  static const std::map<std::string_view, Filter> kAll = {
      {"length", length},
      {"count", length},
      {"trim", trim},
      {"tojson", to_json},
      {"default", otherwise},
      {"d", otherwise},
      {"join", join},
      {"first", [](const Value& v, Arguments& a) { return end_of(v, a, true); }},
      {"last", [](const Value& v, Arguments& a) { return end_of(v, a, false); }},
      {"list", listed},
      {"string", [](const Value& v, Arguments& a) { return Value::text(text_of(v, a.budget)); }},
      {"int", to_integer},
      {"items", items},
      {"reverse", reverse},
      {"select", [](const Value& v, Arguments& a) { return select(v, a, false, true); }},
      {"reject", [](const Value& v, Arguments& a) { return select(v, a, false, false); }},
      {"selectattr", [](const Value& v, Arguments& a) { return select(v, a, true, true); }},
      {"rejectattr", [](const Value& v, Arguments& a) { return select(v, a, true, false); }},
      {"map", map},
      {"unique", unique},
      {"replace", replace_filter},
      {"upper", [](const Value& v, Arguments& a) { return with_case(v, a, Case::kUpper); }},
      {"lower", [](const Value& v, Arguments& a) { return with_case(v, a, Case::kLower); }},
      {"capitalize", [](const Value& v, Arguments& a) { return with_case(v, a, Case::kCapital); }},
  };
  return kAll;
}

using Test = bool (*)(const Value&, Arguments&);

template <const char* kOp>
bool compared(const Value& value, Arguments& a) {
  return compare(kOp, value, a.need(0, ""), a.budget);
}
constexpr char kEqual[] = "==", kUnequal[] = "!=", kLess[] = "<", kAtMost[] = "<=", kMore[] = ">",
               kAtLeast[] = ">=", kIn[] = "in";

bool remainder(const Value& value, std::int64_t by, std::int64_t wanted, Arguments& a) {
  return compare("==", binary("%", value, Value::integer(by), a.budget), Value::integer(wanted), a.budget);
}

bool is_sequence(const Value& value) {
  return value.text() != nullptr || value.mapping() != nullptr ||
         (value.list() != nullptr && !value.list()->lazy) || value.is_undefined();
}

const std::map<std::string_view, Test>& all_tests() {
  static const std::map<std::string_view, Test> kAll = {
      {"defined", [](const Value& v, Arguments&) { return !v.is_undefined(); }},
      {"undefined", [](const Value& v, Arguments&) { return v.is_undefined(); }},
      {"none", [](const Value& v, Arguments&) { return v.is_none(); }},
      {"string", [](const Value& v, Arguments&) { return v.text() != nullptr; }},
      {"mapping", [](const Value& v, Arguments&) { return v.mapping() != nullptr; }},
      {"sequence", [](const Value& v, Arguments&) { return is_sequence(v); }},
      {"iterable", [](const Value& v, Arguments&) { return is_sequence(v) || v.list() != nullptr; }},
      {"number", [](const Value& v, Arguments&) { return v.is_number(); }},
      {"integer", [](const Value& v, Arguments&) { return v.as<std::int64_t>() != nullptr; }},
      {"float", [](const Value& v, Arguments&) { return v.as<double>() != nullptr; }},
      {"boolean", [](const Value& v, Arguments&) { return v.as<bool>() != nullptr; }},
      {"true", [](const Value& v, Arguments&) { return v.as<bool>() != nullptr && v.truth(); }},
      {"false", [](const Value& v, Arguments&) { return v.as<bool>() != nullptr && !v.truth(); }},
      {"odd", [](const Value& v, Arguments& a) { return remainder(v, 2, 1, a); }},
      {"even", [](const Value& v, Arguments& a) { return remainder(v, 2, 0, a); }},
      {"divisibleby",
       [](const Value& v, Arguments& a) { return remainder(v, a.integer(0, "num", 0), 0, a); }},
      {"eq", compared<kEqual>},
      {"equalto", compared<kEqual>},
      {"==", compared<kEqual>},
      {"ne", compared<kUnequal>},
      {"!=", compared<kUnequal>},
      {"lt", compared<kLess>},
      {"lessthan", compared<kLess>},
      {"<", compared<kLess>},
      {"le", compared<kAtMost>},
      {"<=", compared<kAtMost>},
      {"gt", compared<kMore>},
      {"greaterthan", compared<kMore>},
      {">", compared<kMore>},
      {"ge", compared<kAtLeast>},
      {">=", compared<kAtLeast>},
      {"in", compared<kIn>},
  };
  return kAll;
}

}  // namespace

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

void Arguments::finish() const {
  if (read_ < values.size())
    budget.fail(fmt::format("{} takes at most {} such arguments here", of_, read_),
                fmt::format("{}", values.size()), "leave the others out");
  for (const auto& [key, value] : named)
    if (std::ranges::find(read_names_, key) == read_names_.end())
      budget.fail(fmt::format("{} takes no argument '{}' here", of_, key), "it", "leave it out");
}

Value filter(std::string_view name, const Value& value, Arguments& arguments) {
  const auto found = all_filters().find(name);
  if (found == all_filters().end())
    arguments.budget.fail(fmt::format("the filter '{}' is not understood here", name), "it",
                          "write the template without it");
  Value result = found->second(value, arguments);
  arguments.finish();
  return result;
}

bool test(std::string_view name, const Value& value, Arguments& arguments) {
  const auto found = all_tests().find(name);
  if (found == all_tests().end())
    arguments.budget.fail(fmt::format("the test '{}' is not understood here", name), "it",
                          "write the template without it");
  const bool result = found->second(value, arguments);
  arguments.finish();
  return result;
}

}  // namespace colonnade::data::chat
