// See library.h: Jinja's filters of strings; tojson is that of Transformers.
#include "colonnade/chat_template/filters.h"
#include "colonnade/chat_template/text_methods.h"
#include "colonnade/tokenizers/unicode.h"

namespace colonnade::chat_template {
namespace {

Value trim(const Value& value, Arguments& a) {
  const std::string text = text_of(value, a.budget);
  const Value* chars = a.get(0, "chars");
  const bool given = chars != nullptr && !chars->is_none();
  if (given && chars->text() == nullptr) a.fail("characters must be a string", *chars);
  if (given) a.budget.spend(text.size() * (1 + chars->text()->size() / 16));
  return Value::like(value, std::string(stripped(text, given ? chars->text() : nullptr, true, true)));
}

Value to_json(const Value& value, Arguments& a) {
  JsonStyle style;
  const Value* ascii = a.get(0, "ensure_ascii");
  style.ascii = ascii != nullptr && ascii->is_truthy();
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
  style.sorted = sorted != nullptr && sorted->is_truthy();
  return Value::text(json_of(value, style, a.budget));
}

Value join(const Value& value, Arguments& a) {
  const Value* given = a.get(0, "d");
  const std::string between = given != nullptr ? text_of(*given, a.budget) : "";
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

Value replace(const Value& value, Arguments& a) {
  const std::string text = text_of(value, a.budget);
  const std::string old = text_of(a.require(0, "old"), a.budget),
                    with = text_of(a.require(1, "new"), a.budget);
  const Value* count = a.get(2, "count");
  const bool all = count == nullptr || count->is_none();
  return Value::text(replaced(text, old, with, all ? -1 : a.integer(2, "count", -1), a.budget));
}

Value with_case(const Value& value, Arguments& a, Case to) {
  return Value::like(value, cased(text_of(value, a.budget), to));
}

/// Whether a new word starts after a character.
bool ends_word(char32_t c) { return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space(c); }

Value title(const Value& value, Arguments& a) {
  const std::string text = text_of(value, a.budget);
  std::string result, rest;
  bool between = false;
  const auto put_rest = [&] { result += cased(std::exchange(rest, ""), Case::kLower); };
  tokenizers::for_each_char(text, [&](char32_t c, std::string_view bytes) {
    const bool is_first = (result.empty() && rest.empty()) || ends_word(c) != between;
    between = ends_word(c);
    if (is_first) {
      put_rest();
      result += cased(bytes, Case::kUpper);
    } else {
      rest += bytes;
    }
  });
  put_rest();
  return Value::text(std::move(result));
}

/// Indents every line except, unless requested, the first and empty ones.
Value indent(const Value& value, Arguments& a) {
  if (value.text() == nullptr) a.fail("it must be a string", value);
  const Value* width = a.get(0, "width");
  const Value *first = a.get(1, "first"), *blank = a.get(2, "blank");
  if (width != nullptr && width->is_safe() && !value.is_safe())
    a.fail("the width must not be a safe string here", *width);
  std::string gap;
  if (width != nullptr && width->text() != nullptr)
    gap = *width->text();
  else if (const std::int64_t spaces = a.integer(0, "width", 4); spaces > 0) {
    a.budget.spend(static_cast<std::size_t>(spaces));
    gap.assign(static_cast<std::size_t>(spaces), ' ');
  }
  const bool empty_too = blank != nullptr && blank->is_truthy();
  std::string text = first != nullptr && first->is_truthy() ? gap : "";
  a.budget.spend(8 * value.text()->size());
  bool is_first = true;
  for (const std::string& line : lines_of(*value.text() + "\n", false)) {
    a.budget.spend(gap.size() + line.size());
    if (!is_first) text += empty_too || !line.empty() ? "\n" + gap : "\n";
    text += line;
    is_first = false;
  }
  return Value::like(value, std::move(text));
}

Value to_string(const Value& value, Arguments& a) { return Value::like(value, text_of(value, a.budget)); }

Value safe(const Value& value, Arguments& a) { return Value::safe(text_of(value, a.budget)); }

Value escape(const Value& value, Arguments& a) {
  const std::string text = text_of(value, a.budget);
  return Value::safe(value.is_safe() ? text : escaped(text, a.budget));
}

Value force_escape(const Value& value, Arguments& a) {
  return Value::safe(escaped(text_of(value, a.budget), a.budget));
}

}  // namespace

const Filters& text_filters() {
  static const Filters kAll = {
      {"trim", trim},
      {"tojson", to_json},
      {"join", join},
      {"replace", replace},
      {"upper", [](const Value& v, Arguments& a) { return with_case(v, a, Case::kUpper); }},
      {"lower", [](const Value& v, Arguments& a) { return with_case(v, a, Case::kLower); }},
      {"capitalize", [](const Value& v, Arguments& a) { return with_case(v, a, Case::kCapital); }},
      {"title", title},
      {"indent", indent},
      {"string", to_string},
      {"safe", safe},
      {"escape", escape},
      {"e", escape},
      {"forceescape", force_escape},
  };
  return kAll;
}

}  // namespace colonnade::chat_template
