// See library.h: Python's methods of strings and mappings.
#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <map>

#include "colonnade/chat_template/library.h"
#include "colonnade/chat_template/text_methods.h"
#include "colonnade/tokenizers/unicode.h"

namespace colonnade::chat_template {
namespace {

const std::string& text(const Value& value) { return *value.text(); }

enum Side : std::uint8_t { kLeft = 1, kRight = 2, kBoth = 3 };

Value strip_method(const Value& value, Arguments& a, Side side) {
  const Value* given = a.get(0, "");
  if (given == nullptr || given->is_none())
    return Value::like(
        value, std::string(stripped(text(value), nullptr, (side & kLeft) != 0, (side & kRight) != 0)));
  if (given->text() == nullptr) a.fail("characters must be a string", *given);
  a.budget.spend(text(value).size() * (1 + given->text()->size() / 16));
  return Value::like(
      value, std::string(stripped(text(value), given->text(), (side & kLeft) != 0, (side & kRight) != 0)));
}

/// A list of substrings of `value`.
Value to_list(const Value& value, const std::vector<std::string>& parts, const Budget& budget) {
  std::vector<Value> values;
  for (const std::string& part : parts) values.push_back(Value::like(value, part));
  return Value::list(std::move(values), budget);
}

Value split(const Value& value, Arguments& a) {
  const Value* given = a.get(0, "sep");
  const std::int64_t most = a.integer(1, "maxsplit", -1);
  const bool spaces = given == nullptr || given->is_none();
  if (!spaces && (given->text() == nullptr || given->text()->empty()))
    a.fail("the separator must be a string with characters", *given);
  a.budget.spend(8 * text(value).size());
  std::vector<std::string> parts;
  std::string_view rest = text(value);
  if (spaces) {
    rest = stripped(rest, nullptr, true, false);
    while (!rest.empty()) {
      std::size_t end = 0;
      while (end < rest.size()) {
        const tokenizers::Decoded c = tokenizers::decode_utf8(rest.data() + end);
        if (is_space(c.value)) break;
        end += static_cast<std::size_t>(c.size);
      }
      if (most >= 0 && static_cast<std::int64_t>(parts.size()) == most) {
        parts.emplace_back(rest);
        break;
      }
      parts.emplace_back(rest.substr(0, end));
      rest = stripped(rest.substr(end), nullptr, true, false);
    }
    return to_list(value, parts, a.budget);
  }
  while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
    const std::size_t at = find_in(rest, *given->text());
    if (at == std::string_view::npos) break;
    parts.emplace_back(rest.substr(0, at));
    rest.remove_prefix(at + given->text()->size());
  }
  parts.emplace_back(rest);
  return to_list(value, parts, a.budget);
}

Value rsplit(const Value& value, Arguments& a) {
  const Value* given = a.get(0, "sep");
  const std::int64_t most = a.integer(1, "maxsplit", -1);
  if (given == nullptr || given->text() == nullptr || given->text()->empty())
    a.budget.fail("rsplit requires a separator here", "none", "give it");
  a.budget.spend(8 * text(value).size() * (1 + given->text()->size() / 16));
  std::vector<std::string> parts;
  std::string_view rest = text(value);
  while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
    const std::size_t at = rest.rfind(*given->text());
    if (at == std::string_view::npos) break;
    parts.emplace_back(rest.substr(at + given->text()->size()));
    rest = rest.substr(0, at);
  }
  parts.emplace_back(rest);
  std::ranges::reverse(parts);
  return to_list(value, parts, a.budget);
}

Value split_lines(const Value& value, Arguments& a) {
  const Value* keep = a.get(0, "keepends");
  a.budget.spend(8 * text(value).size());
  return to_list(value, lines_of(text(value), keep != nullptr && keep->is_truthy()), a.budget);
}

/// startswith and endswith, with one string or a tuple of strings.
Value has_affix(const Value& value, Arguments& a, bool front) {
  const Value& given = a.require(0, "");
  std::vector<Value> all{given};
  if (given.list() != nullptr && given.list()->kind == ListKind::kTuple) all = given.list()->items;
  for (const Value& each : all) {
    if (each.text() == nullptr) a.fail("it must be a string, or a tuple of them", each);
    if (front ? text(value).starts_with(text(each)) : text(value).ends_with(text(each))) return {true};
  }
  return {false};
}

/// A required string argument.
const std::string& required_text(Arguments& a, std::size_t i, std::string_view name) {
  const Value& given = a.require(i, name);
  if (given.text() == nullptr) a.fail("it must be a string", given);
  return *given.text();
}

Value replace_method(const Value& value, Arguments& a) {
  const std::string& old = required_text(a, 0, "old");
  const std::string& with = required_text(a, 1, "new");
  const bool escapes = value.is_safe() && !a.require(1, "new").is_safe();
  return Value::like(value, replaced(text(value), old, escapes ? escaped(with, a.budget) : with,
                                     a.integer(2, "count", -1), a.budget));
}

Value find_method(const Value& value, Arguments& a) {
  const std::string& pattern = required_text(a, 0, "");
  const std::size_t at = find_in(text(value), pattern);
  if (at == std::string_view::npos) return Value::integer(-1);
  return Value::integer(tokenizers::count_chars(std::string_view(text(value)).substr(0, at)));
}

Value count_method(const Value& value, Arguments& a) {
  const std::string& pattern = required_text(a, 0, "");
  if (pattern.empty()) return Value::integer(tokenizers::count_chars(text(value)) + 1);
  std::int64_t count = 0;
  std::string_view rest = text(value);
  for (std::size_t at = find_in(rest, pattern); at != std::string_view::npos; at = find_in(rest, pattern)) {
    ++count;
    rest.remove_prefix(at + pattern.size());
  }
  return Value::integer(count);
}

Value join_method(const Value& value, Arguments& a) {
  std::string joined;
  const std::vector<Value> items = items_of(a.require(0, ""), a.budget);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].text() == nullptr && !value.is_safe()) a.fail("the items to join must be strings", items[i]);
    std::string part = text_of(items[i], a.budget);
    if (value.is_safe() && !items[i].is_safe()) part = escaped(part, a.budget);
    a.budget.spend(part.size() + text(value).size());
    joined += (i > 0 ? text(value) : std::string()) + part;
  }
  return Value::like(value, std::move(joined));
}

Value get_method(const Value& value, Arguments& a) {
  const Value& key = a.require(0, "");
  const Value* fallback = a.get(1, "");
  a.budget.spend(value.mapping()->items.size());
  const Value* found = key.text() != nullptr ? value.mapping()->find(text(key)) : nullptr;
  if (found != nullptr) return *found;
  return fallback != nullptr ? *fallback : Value::none();
}

Value values_method(const Value& value, Arguments& a) {
  std::vector<Value> values;
  for (const auto& each : value.mapping()->items) values.push_back(each.second);
  a.budget.spend(4 * values.size());
  return Value::list(std::move(values), a.budget, ListKind::kView);
}

Value keys_method(const Value& value, Arguments& a) {
  return Value::list(items_of(value, a.budget), a.budget, ListKind::kView);
}

Value items_method(const Value& value, Arguments& a) {
  return Value::list(pairs_of(*value.mapping(), a.budget), a.budget, ListKind::kView);
}

Value remove_affix(const Value& value, Arguments& a, bool front) {
  const std::string& affix = required_text(a, 0, "");
  std::string_view rest = text(value);
  if (front && rest.starts_with(affix)) rest.remove_prefix(affix.size());
  if (!front && rest.ends_with(affix)) rest.remove_suffix(affix.size());
  return Value::like(value, std::string(rest));
}

Value case_method(const Value& value, Case to) { return Value::like(value, cased(text(value), to)); }

/// str.title(): a letter after an uncased character is in title case.
Value title_method(const Value& value, Arguments& a) {
  const std::vector<std::string_view> all = characters(text(value));
  a.budget.spend(4 * kStep * all.size());
  const auto is = [&](std::size_t i, UProperty property) {
    return u_hasBinaryProperty(static_cast<UChar32>(tokenizers::decode_utf8(all[i].data()).value),
                               property) != 0;
  };
  // A sigma at the end of a word has another form.
  const auto ends_word = [&](std::size_t i) {
    std::size_t before = i, after = i + 1;
    while (before > 0 && is(before - 1, UCHAR_CASE_IGNORABLE)) --before;
    while (after < all.size() && is(after, UCHAR_CASE_IGNORABLE)) ++after;
    a.budget.spend(after - before);
    return before > 0 && is(before - 1, UCHAR_CASED) && (after == all.size() || !is(after, UCHAR_CASED));
  };
  std::string result;
  bool in_word = false;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (in_word && all[i] == "\u03a3")
      result += ends_word(i) ? "\u03c2" : "\u03c3";
    else
      result += cased(all[i], in_word ? Case::kLower : Case::kCapital);
    in_word = is(i, UCHAR_CASED);
  }
  return Value::like(value, std::move(result));
}

using Method = Value (*)(const Value&, Arguments&);

const std::map<std::string_view, Method>& text_methods() {
  static const std::map<std::string_view, Method> kAll = {
      {"strip", [](const Value& v, Arguments& a) { return strip_method(v, a, kBoth); }},
      {"lstrip", [](const Value& v, Arguments& a) { return strip_method(v, a, kLeft); }},
      {"rstrip", [](const Value& v, Arguments& a) { return strip_method(v, a, kRight); }},
      {"split", split},
      {"rsplit", rsplit},
      {"splitlines", split_lines},
      {"startswith", [](const Value& v, Arguments& a) { return has_affix(v, a, true); }},
      {"endswith", [](const Value& v, Arguments& a) { return has_affix(v, a, false); }},
      {"removeprefix", [](const Value& v, Arguments& a) { return remove_affix(v, a, true); }},
      {"removesuffix", [](const Value& v, Arguments& a) { return remove_affix(v, a, false); }},
      {"replace", replace_method},
      {"find", find_method},
      {"count", count_method},
      {"join", join_method},
      {"upper", [](const Value& v, Arguments&) { return case_method(v, Case::kUpper); }},
      {"lower", [](const Value& v, Arguments&) { return case_method(v, Case::kLower); }},
      {"capitalize", [](const Value& v, Arguments&) { return case_method(v, Case::kCapital); }},
      {"title", title_method},
  };
  return kAll;
}

const std::map<std::string_view, Method>& mapping_methods() {
  static const std::map<std::string_view, Method> kAll = {
      {"get", get_method}, {"keys", keys_method}, {"values", values_method}, {"items", items_method}};
  return kAll;
}

}  // namespace

std::size_t find_in(std::string_view text, std::string_view part) {
  if (part.empty()) return 0;
  const void* at = memmem(text.data(), text.size(), part.data(), part.size());
  return at == nullptr ? std::string_view::npos
                       : static_cast<std::size_t>(static_cast<const char*>(at) - text.data());
}

std::string_view stripped(std::string_view text, const std::string* chars, bool left, bool right) {
  const auto is_stripped = [&](std::size_t at, std::size_t& size) {
    const tokenizers::Decoded c = tokenizers::decode_utf8(text.data() + at);
    size = static_cast<std::size_t>(c.size);
    return chars == nullptr ? is_space(c.value)
                            : find_in(*chars, text.substr(at, size)) != std::string_view::npos;
  };
  std::size_t size = 0;
  while (left && !text.empty() && is_stripped(0, size)) text.remove_prefix(size);
  while (right && !text.empty()) {
    std::size_t last = text.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xC0U) == 0x80) --last;
    if (!is_stripped(last, size)) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

std::string replaced(std::string_view text, std::string_view old, std::string_view with, std::int64_t most,
                     Budget& budget) {
  std::string result;
  const auto put = [&](std::string_view part) {
    budget.spend(part.size() + 1);
    result += part;
  };
  if (old.empty()) {
    const auto between = [&] {
      if (most == 0) return;
      put(with);
      if (most > 0) --most;
    };
    for (const std::string_view c : characters(text)) {
      between();
      put(c);
    }
    between();
    return result;
  }
  while (most != 0) {
    const std::size_t at = find_in(text, old);
    if (at == std::string_view::npos) break;
    put(text.substr(0, at));
    put(with);
    text.remove_prefix(at + old.size());
    if (most > 0) --most;
  }
  put(text);
  return result;
}

std::string cased(std::string_view text, Case to) {
  const icu::Locale& root = icu::Locale::getRoot();
  const auto bytes_of = [](const icu::UnicodeString& part) {
    std::string bytes;
    part.toUTF8String(bytes);
    return bytes;
  };
  const auto units = [](std::string_view part) {
    return icu::UnicodeString::fromUTF8(
        icu::StringPiece(part.data(), static_cast<std::int32_t>(part.size())));
  };
  if (to == Case::kUpper) return bytes_of(units(text).toUpper(root));
  if (to == Case::kLower || text.empty()) return bytes_of(units(text).toLower(root));
  const auto first = static_cast<std::size_t>(tokenizers::decode_utf8(text.data()).size);
  const std::string low = bytes_of(units(text).toLower(root));
  const std::string low_first = bytes_of(units(text.substr(0, first)).toLower(root));
  return bytes_of(units(text.substr(0, first)).toTitle(nullptr, root)) + low.substr(low_first.size());
}

std::vector<std::string> lines_of(std::string_view text, bool with_ends) {
  std::vector<std::string> parts;
  std::string line;
  bool after_return = false;
  tokenizers::for_each_char(text, [&](char32_t c, std::string_view bytes) {
    const bool pair = after_return && c == '\n';
    after_return = c == '\r';
    if (pair) {
      if (with_ends) parts.back() += bytes;
      return;
    }
    const bool ends = (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!ends || (with_ends)) line += bytes;
    if (ends) parts.push_back(std::exchange(line, ""));
  });
  if (!line.empty()) parts.push_back(line);
  return parts;
}

Value method(std::string_view name, const Value& value, Arguments& arguments) {
  const auto* table = value.text() != nullptr      ? &text_methods()
                      : value.mapping() != nullptr ? &mapping_methods()
                                                   : nullptr;
  const auto found = table != nullptr ? table->find(name) : text_methods().end();
  if (table == nullptr || found == table->end()) {
    if (is_method(value, name))
      arguments.budget.fail(fmt::format("the method '{}' of {} is not supported", name, value.kind()), "it",
                            "write the template without it");
    arguments.budget.fail(fmt::format("'.{}()' must be a method of the value", name), value.kind(),
                          "fix the template or the data");
  }
  if (value.text() != nullptr) arguments.budget.spend(value.text()->size());
  return found->second(value, arguments);
}

}  // namespace colonnade::chat_template
