// See value.h.
#include "colonnade/chat_template/value.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "colonnade/tokenizers/unicode.h"

namespace colonnade::chat_template {
namespace {

constexpr int kMaxDepth = 100;

int checked_depth(int depth, const Budget& budget) {
  if (depth > kMaxDepth)
    budget.fail(fmt::format("lists and mappings must be nested at most {} deep", kMaxDepth),
                fmt::format("{}", depth), "fix the template or the data");
  return depth;
}

/// repr(number): integral floats keep their ".0".
std::string text_of_number(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (u_charType(static_cast<UChar32>(c))) {
    case U_UNASSIGNED:
    case U_CONTROL_CHAR:
    case U_FORMAT_CHAR:
    case U_PRIVATE_USE_CHAR:
    case U_SURROGATE:
    case U_SPACE_SEPARATOR:
    case U_LINE_SEPARATOR:
    case U_PARAGRAPH_SEPARATOR:
      return false;
    default:
      return true;
  }
}

/// repr(text)
std::string quoted(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string result(1, quote);
  tokenizers::for_each_char(text, [&](char32_t c, std::string_view bytes) {
    if (c == '\n') {
      result += "\\n";
    } else if (c == '\r') {
      result += "\\r";
    } else if (c == '\t') {
      result += "\\t";
    } else if (c == '\\' || c == static_cast<char32_t>(quote)) {
      result += fmt::format("\\{}", bytes);
    } else if (is_printable(c)) {
      result += bytes;
    } else {
      const auto number = static_cast<std::uint32_t>(c);
      result += c < 0x100     ? fmt::format("\\x{:02x}", number)
                : c < 0x10000 ? fmt::format("\\u{:04x}", number)
                              : fmt::format("\\U{:08x}", number);
    }
  });
  return result + quote;
}

std::string json_quoted(std::string_view text, bool ascii) {
  std::string result = "\"";
  tokenizers::for_each_char(text, [&](char32_t c, std::string_view bytes) {
    constexpr std::string_view kNamed = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
    const std::size_t named = c < 0x80 ? kNamed.find(static_cast<char>(c)) : std::string_view::npos;
    const auto number = static_cast<std::uint32_t>(c);
    if (named != std::string_view::npos) {
      result += {'\\', kLetters[named]};
    } else if (c >= 0x10000 && ascii) {
      result += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((number - 0x10000) >> 10),
                            0xdc00 + ((number - 0x10000) & 0x3ff));
    } else if (c < 0x20 || (c >= 0x7f && ascii)) {
      result += fmt::format("\\u{:04x}", number);
    } else {
      result += bytes;
    }
  });
  return result + '"';
}

/// Writes a value as Python does, or as JSON.
class Writer {
 public:
  Writer(Budget& budget, const JsonStyle* json) : budget_(budget), json_(json) {}

  std::string write(const Value& value, int level) {
    budget_.spend(2 * kStep);
    std::string text = part(value, level);
    budget_.spend(text.size());
    return text;
  }

 private:
  std::string part(const Value& value, int level) {
    const bool json = json_ != nullptr;
    if (value.is_none()) return json ? "null" : "None";
    if (value.is_undefined() && !json) return "Undefined";
    if (const bool* truth = value.as<bool>())
      return json ? (*truth ? "true" : "false") : (*truth ? "True" : "False");
    if (const auto* number = value.as<std::int64_t>()) return std::to_string(*number);
    if (const double* number = value.as<double>()) return real(*number);
    if (value.text() != nullptr) return text_part(value);
    if (const List* list = value.list(); list != nullptr && list->is_data()) return list_of(*list, level);
    if (const Mapping* mapping = value.mapping()) return mapping_of(*mapping, level);
    budget_.fail(json ? "tojson accepts only JSON data" : "only data can be written", value.kind(),
                 "write its items");
  }

  [[nodiscard]] std::string text_part(const Value& value) const {
    if (json_ != nullptr) return json_quoted(*value.text(), json_->ascii);
    return value.is_safe() ? fmt::format("Markup({})", quoted(*value.text())) : quoted(*value.text());
  }

  [[nodiscard]] std::string real(double number) const {
    if (json_ != nullptr && std::isnan(number)) return "NaN";
    if (json_ != nullptr && std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return text_of_number(number);
  }

  [[nodiscard]] bool lines() const { return json_ != nullptr && json_->indent >= 0; }
  [[nodiscard]] std::string gap(int level) const {
    return lines() ? "\n" + std::string(static_cast<std::size_t>(json_->indent * level), ' ') : "";
  }
  [[nodiscard]] std::string between(int level) const {
    return (json_ != nullptr ? json_->between : ", ") + gap(level);
  }

  std::string list_of(const List& list, int level) {
    const bool is_tuple = list.kind == ListKind::kTuple && json_ == nullptr;
    std::string text(1, is_tuple ? '(' : '[');
    for (std::size_t i = 0; i < list.items.size(); ++i)
      text += (i > 0 ? between(level + 1) : gap(level + 1)) + write(list.items[i], level + 1);
    if (!list.items.empty()) text += gap(level);
    return text + (is_tuple ? (list.items.size() == 1 ? ",)" : ")") : "]");
  }

  std::string mapping_of(const Mapping& mapping, int level) {
    std::vector<const std::pair<std::string, Value>*> items;
    for (const auto& item : mapping.items) items.push_back(&item);
    if (json_ != nullptr && json_->sorted)
      std::ranges::sort(items, {}, [](const auto* item) -> const std::string& { return item->first; });
    std::string text = "{";
    for (std::size_t i = 0; i < items.size(); ++i)
      text += (i > 0 ? between(level + 1) : gap(level + 1)) +
              (json_ != nullptr ? json_quoted(items[i]->first, json_->ascii) + json_->colon
                                : quoted(items[i]->first) + ": ") +
              write(items[i]->second, level + 1);
    if (!items.empty()) text += gap(level);
    return text + "}";
  }

  Budget& budget_;
  const JsonStyle* json_;
};

}  // namespace

const Value* Mapping::find(std::string_view key) const {
  for (const auto& item : items)
    if (item.first == key) return &item.second;
  return nullptr;
}

std::size_t List::num_consumed(const Budget& budget) const {
  if (consumed == kUnknown)
    budget.fail("a generator must not be used after a filter or an unfinished loop has consumed it", "it",
                "make a list of it first: | list");
  return consumed;
}

void List::consume(std::size_t count, const Budget& budget) const {
  if (consumed != count) consumed = budget.lazy_depth > 0 ? kUnknown : count;
}

bool Loop::has_item(std::size_t i) {
  while (items.size() <= i && fetch_next()) {
  }
  return i < items.size();
}

Value Value::list(std::vector<Value> items, const Budget& budget, ListKind kind) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return {std::make_shared<const List>(List{std::move(items), kind, checked_depth(depth + 1, budget)})};
}

Value Value::mapping(std::vector<std::pair<std::string, Value>> items, const Budget& budget) {
  int depth = 0;
  for (const auto& item : items) depth = std::max(depth, item.second.depth());
  return {std::make_shared<const Mapping>(Mapping{std::move(items), checked_depth(depth + 1, budget)})};
}

Value Value::like(const Value& model, std::string text) {
  const std::size_t size = text.size();
  const Value plain = model.is_safe() ? safe(std::move(text)) : Value::text(std::move(text));
  return model.provenance_ != nullptr ? plain.with(spread(*model.provenance_, size)) : plain;
}

const Provenance& Value::provenance() const {
  static const Provenance kNone;
  return provenance_ != nullptr ? *provenance_ : kNone;
}

Value Value::with(Provenance provenance) const {
  Value value = *this;
  value.provenance_ =
      provenance.empty() ? nullptr : std::make_shared<const Provenance>(std::move(provenance));
  return value;
}

const std::string* Value::text() const {
  const auto* text = as<Text>();
  const auto* safe = as<Safe>();
  return text != nullptr ? text->get() : safe != nullptr ? safe->text.get() : nullptr;
}

const List* Value::list() const {
  const auto* list = as<std::shared_ptr<const List>>();
  return list != nullptr ? list->get() : nullptr;
}

const Mapping* Value::mapping() const {
  const auto* mapping = as<std::shared_ptr<const Mapping>>();
  return mapping != nullptr ? mapping->get() : nullptr;
}

std::int64_t Value::integer() const {
  if (const bool* truth = as<bool>()) return *truth ? 1 : 0;
  return std::get<std::int64_t>(data_);
}

double Value::number() const {
  if (const double* number = as<double>()) return *number;
  return static_cast<double>(integer());
}

int Value::depth() const {
  if (const List* items = list()) return items->depth;
  if (const Mapping* items = mapping()) return items->depth;
  return 0;
}

bool Value::is_truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return number() != 0;
  if (const std::string* characters = text()) return !characters->empty();
  if (const List* items = list()) return items->kind == ListKind::kGenerator || !items->items.empty();
  if (const Mapping* items = mapping()) return !items->items.empty();
  return true;
}

std::string Value::kind() const {
  static constexpr std::array kNames = {"",           "none",         "a boolean", "an integer",  "a float",
                                        "a string",   "a list",       "a mapping", "a namespace", "a loop",
                                        "a function", "a safe string"};
  if (const Undefined* missing = as<Undefined>())
    return missing->name.empty() ? "an undefined value"
                                 : fmt::format("'{}', which is undefined", missing->name);
  if (const List* items = list(); items != nullptr && !items->is_data())
    return items->kind == ListKind::kGenerator ? "a generator"
           : items->kind == ListKind::kView    ? "a view of a mapping"
                                               : "a range";
  return kNames.at(data_.index());
}

std::string text_of(const Value& value, Budget& budget) {
  if (value.is_undefined()) return "";
  if (const std::string* text = value.text()) {
    budget.spend(text->size());
    return *text;
  }
  return Writer(budget, nullptr).write(value, 0);
}

std::string json_of(const Value& value, const JsonStyle& style, Budget& budget) {
  return Writer(budget, &style).write(value, 0);
}

namespace {

bool equal_items(const List& left, const List& right, Budget& budget) {
  if (left.kind != right.kind) return false;
  if (left.kind == ListKind::kGenerator) return &left == &right;
  if (left.kind == ListKind::kView)
    budget.fail("views of mappings cannot be compared here", "two", "make lists of them");
  if (left.items.size() != right.items.size()) return false;
  for (std::size_t i = 0; i < left.items.size(); ++i)
    if (!equal(left.items[i], right.items[i], budget)) return false;
  return true;
}

bool equal_items(const Mapping& left, const Mapping& right, Budget& budget) {
  if (left.items.size() != right.items.size()) return false;
  for (const auto& [key, value] : left.items) {
    budget.spend(right.items.size());
    const Value* other = right.find(key);
    if (other == nullptr || !equal(value, *other, budget)) return false;
  }
  return true;
}

}  // namespace

int order_of_numbers(const Value& left, const Value& right) {
  const auto sign = [](auto a, auto b) { return a < b ? -1 : a > b ? 1 : 0; };
  if (left.is_integer() && right.is_integer()) return sign(left.integer(), right.integer());
  if (right.is_integer()) return -order_of_numbers(right, left);
  constexpr double kBeyondIntegers = 9223372036854775808.0;  // 2^63
  const double real = right.number();
  if (!left.is_integer() || !(std::abs(real) < kBeyondIntegers)) return sign(left.number(), real);
  const double whole = std::trunc(real);
  const int rough = sign(left.integer(), static_cast<std::int64_t>(whole));
  return rough != 0 ? rough : sign(whole, real);
}

bool equal(const Value& left, const Value& right, Budget& budget) {
  budget.spend(kStep);
  if (left.is_number() && right.is_number()) return order_of_numbers(left, right) == 0;
  if (left.text() != nullptr && right.text() != nullptr) {
    budget.spend(left.text()->size());
    return *left.text() == *right.text();
  }
  if (left.data().index() != right.data().index()) return false;
  if (const List* items = left.list()) return equal_items(*items, *right.list(), budget);
  if (const Mapping* items = left.mapping()) return equal_items(*items, *right.mapping(), budget);
  if (const auto* space = left.as<Namespace*>()) return *space == *right.as<Namespace*>();
  if (left.is_none() || left.is_undefined()) return true;
  budget.fail("loops and functions cannot be compared here", left.kind(), "fix the template");
}

std::vector<Value> items_of(const Value& value, Budget& budget) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (const List* list = value.list()) {
    items.assign(list->items.begin() + static_cast<std::ptrdiff_t>(list->num_consumed(budget)),
                 list->items.end());
    if (list->kind == ListKind::kGenerator) list->consume(list->items.size(), budget);
  } else if (const Mapping* mapping = value.mapping()) {
    for (const auto& item : mapping->items) items.push_back(Value::text(item.first));
  } else if (const std::string* text = value.text()) {
    budget.spend(4 * kStep * text->size());
    for (const std::string_view c : characters(*text)) items.push_back(Value::text(std::string(c)));
  } else {
    budget.fail("the value must be a list, a mapping or a string", value.kind(), "fix the template");
  }
  budget.spend(2 * kStep * items.size());
  return items;
}

std::string escaped(std::string_view text, Budget& budget) {
  constexpr std::string_view kSpecial = "&<>'\"";
  constexpr std::array kNames = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  std::string result;
  for (const char c : text) {
    const std::size_t at = kSpecial.find(c);
    if (at == std::string_view::npos)
      result += c;
    else
      result += kNames.at(at);
  }
  budget.spend(result.size());
  return result;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  tokenizers::for_each_char(text, [&](char32_t, std::string_view bytes) { all.push_back(bytes); });
  return all;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_method(const Value& value, std::string_view name) {
  static constexpr std::array<std::string_view, 48> kOfText = {
      "capitalize", "casefold",     "center",       "count",   "encode",     "endswith",    "expandtabs",
      "find",       "format",       "format_map",   "index",   "isalnum",    "isalpha",     "isascii",
      "isdecimal",  "isdigit",      "isidentifier", "islower", "isnumeric",  "isprintable", "isspace",
      "istitle",    "isupper",      "join",         "ljust",   "lower",      "lstrip",      "maketrans",
      "partition",  "removeprefix", "removesuffix", "replace", "rfind",      "rindex",      "rjust",
      "rpartition", "rsplit",       "rstrip",       "split",   "splitlines", "startswith",  "strip",
      "swapcase",   "title",        "translate",    "upper",   "zfill",      "isspace"};
  static constexpr std::array<std::string_view, 11> kOfList = {
      "append", "clear", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse", "sort"};
  static constexpr std::array<std::string_view, 11> kOfMapping = {
      "clear", "copy",    "fromkeys",   "get",    "items", "keys",
      "pop",   "popitem", "setdefault", "update", "values"};
  const auto has = [&](const auto& names) { return std::ranges::find(names, name) != names.end(); };
  static constexpr std::array<std::string_view, 3> kOfSafe = {"escape", "striptags", "unescape"};
  if (value.text() != nullptr) return has(kOfText) || (value.is_safe() && has(kOfSafe));
  if (value.list() != nullptr) return has(kOfList);
  return value.mapping() != nullptr && has(kOfMapping);
}

}  // namespace colonnade::chat_template
