// See normalizer.h.
#include "colonnade/tokenizers/normalizer.h"

#include <array>

#include "colonnade/base/error.h"
#include "colonnade/tokenizers/growth_limit.h"

namespace colonnade::tokenizers {
namespace {

/// Removes the characters that keep(c) rejects; `first` becomes false if the first one is removed.
template <typename Keep>
void filter(NormalizedString& string, Keep&& keep) {
  std::string kept;
  kept.reserve(string.text.size());
  bool at_start = true;
  for_each_char(string.text, [&](char32_t c, std::string_view bytes) {
    if (keep(c)) {
      kept += bytes;
    } else if (at_start) {
      string.first = false;
    }
    at_start = false;
  });
  string.text = std::move(kept);
}

void strip(NormalizedString& string, const Strip& sides) {
  const CharTable& table = CharTable::get();
  std::size_t begin = std::string::npos, end = 0, at = 0;
  for_each_char(string.text, [&](char32_t c, std::string_view bytes) {
    if (!table.is_space(c)) {
      begin = std::min(begin, at);
      end = at + bytes.size();
    }
    at += bytes.size();
  });
  begin = sides.left ? std::min(begin, at) : 0;
  end = std::max(sides.right ? end : at, begin);
  if (begin > 0) string.first = false;
  string.text = string.text.substr(begin, end - begin);
}

bool is_nmt_control(char32_t c) {
  return (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
}
bool is_nmt_space(char32_t c) {
  return c == 9 || c == 10 || c == 12 || c == 13 || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
         c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
}

void replace_by_spaces(NormalizedString& string, bool (*is_space)(char32_t)) {
  std::string text;
  text.reserve(string.text.size());
  for_each_char(string.text, [&](char32_t c, std::string_view bytes) { text += is_space(c) ? " " : bytes; });
  string.text = std::move(text);
}

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

void bert_normalize(NormalizedString& string, const BertNormalizer& options) {
  const CharTable& table = CharTable::get();
  if (options.clean_text) {
    filter(string, [&](char32_t c) { return c != 0 && c != 0xFFFD && !table.has(c, kBertControl); });
    replace_by_spaces(string, [](char32_t c) { return CharTable::get().is_space(c); });
  }
  if (options.handle_chinese_chars) {
    std::string text;
    for_each_char(string.text, [&](char32_t c, std::string_view bytes) {
      if (is_chinese(c)) {
        text.append(" ").append(bytes).append(" ");
      } else {
        text += bytes;
      }
    });
    string.text = std::move(text);
  }
  if (options.strip_accents) {
    string.text = normalize(NormalForm::kNfd, string.text);
    filter(string, [&](char32_t c) { return !table.has(c, kBertMark); });
  }
  if (options.lowercase) string.text = lower_case(string.text);
}

struct Apply {
  NormalizedString& string;
  GrowthLimit limit;

  void check(std::size_t size) const { limit.check(size); }

  void operator()(const UnicodeNormalizer& n) const { string.text = normalize(n.form, string.text); }
  void operator()(const Lowercase&) const { string.text = lower_case(string.text); }
  void operator()(const Strip& n) const { strip(string, n); }
  void operator()(const StripAccents&) const {
    filter(string, [](char32_t c) { return !CharTable::get().has(c, kCombining); });
  }
  void operator()(const Nmt&) const {
    filter(string, [](char32_t c) { return !is_nmt_control(c); });
    replace_by_spaces(string, is_nmt_space);
  }
  void operator()(const ByteLevelNormalizer&) const { string.text = bytes_as_chars(string.text); }
  void operator()(const Prepend& n) const {
    if (!string.text.empty()) string.text.insert(0, n.text);
  }
  void operator()(const ReplaceText& n) const {
    // The replacement of several characters, or an empty one, does not derive from the first character.
    if (string.text.starts_with(n.pattern) && (n.content.empty() || count_chars(n.pattern) > 1))
      string.first = false;
    std::size_t size = string.text.size(), at = 0;
    if (n.content.size() > n.pattern.size())
      for (; (at = string.text.find(n.pattern, at)) != std::string::npos; at += n.pattern.size())
        check(size += n.content.size() - n.pattern.size());
    string.text = replace_all(string.text, n.pattern, n.content);
  }
  void operator()(const ReplaceRegex& n) const {
    std::vector<Span> spans;
    n.pattern.find(string.text, spans);
    std::string text;
    for (const Span& span : spans) {
      const std::string_view part = std::string_view(string.text).substr(span.begin, span.end - span.begin);
      if (span.matched && span.begin == 0 && !part.empty() && (n.content.empty() || count_chars(part) > 1))
        string.first = false;
      text += span.matched ? std::string_view(n.content) : part;
      check(text.size());
    }
    string.text = std::move(text);
  }
  void operator()(const BertNormalizer& n) const { bert_normalize(string, n); }
  void operator()(const Charsmap& n) const { string.text = n.apply(string.text, limit); }
};

struct ByteAlphabet {
  std::array<char32_t, 256> chars{};
  std::array<std::int16_t, 324> bytes{};
  ByteAlphabet() {
    bytes.fill(-1);
    char32_t spare = 256;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool visible = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      chars[byte] = visible ? byte : spare++;
      bytes[chars[byte]] = static_cast<std::int16_t>(byte);
    }
  }
};
const ByteAlphabet& alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

}  // namespace

void apply_normalizers(std::span<const Normalizer> normalizers, NormalizedString& string) {
  const Apply apply{
      string,
      {string.text.size(), "normalized text", "Replace, Prepend and Precompiled steps of the normalizer"}};
  for (const Normalizer& normalizer : normalizers) {
    std::visit(apply, normalizer);
    apply.check(string.text.size());
  }
}

std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content) {
  std::string result;
  result.reserve(text.size());
  std::size_t at = 0;
  for (std::size_t found = 0; (found = text.find(pattern, at)) != std::string_view::npos;
       at = found + pattern.size())
    result.append(text.substr(at, found - at)).append(content);
  return result.append(text.substr(at));
}

char32_t char_of_byte(unsigned char byte) { return alphabet().chars[byte]; }
int byte_of_char(char32_t c) { return c < alphabet().bytes.size() ? alphabet().bytes[c] : -1; }
std::string bytes_as_chars(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char byte : bytes) append_utf8(text, char_of_byte(static_cast<unsigned char>(byte)));
  return text;
}

}  // namespace colonnade::tokenizers
