// See punkt.h. Text is processed by code points, with the character classes of Python's `regex` module, which
// NLTK 3.10 uses.
#include "colonnade/preprocess/punkt.h"

#include <unicode/uchar.h>
#include <unicode/ustring.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/tokenizers/unicode.h"

namespace colonnade::preprocess {
namespace {

namespace fs = std::filesystem;
using View = std::u32string_view;

/// Characters per block.
constexpr std::size_t kBlock = 1000000;

/// Orthographic context: occurrences in training at the start or inside of a sentence, or unknown; upper or
/// lower case.
constexpr std::uint32_t kMiddleUpper = 1 << 2, kBeginLower = 1 << 4;
constexpr std::uint32_t kUpper = (1 << 1) + (1 << 2) + (1 << 3), kLower = (1 << 4) + (1 << 5) + (1 << 6);

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || c == ' ';
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}
/// Characters that Python's strip() removes.
bool is_stripped(char32_t c) { return is_space(c) || (c >= 0x1c && c <= 0x1f); }
bool is_ascii_space(char32_t c) { return (c >= 9 && c <= 13) || c == ' '; }
bool is_digit(char32_t c) {
  return c < 0x80 ? c >= '0' && c <= '9' : u_charType(static_cast<UChar32>(c)) == U_DECIMAL_DIGIT_NUMBER;
}
/// Word characters except digits.
bool is_letter(char32_t c) {
  const auto point = static_cast<UChar32>(c);
  return u_hasBinaryProperty(point, UCHAR_ALPHABETIC) != 0 ||
         u_hasBinaryProperty(point, UCHAR_JOIN_CONTROL) != 0 ||
         (U_GET_GC_MASK(point) & (U_GC_M_MASK | U_GC_PC_MASK)) != 0;
}
bool is_upper(char32_t c) { return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_UPPERCASE) != 0; }
bool is_lower(char32_t c) { return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_LOWERCASE) != 0; }
bool is_one_of(char32_t c, View set) { return set.find(c) != View::npos; }
bool ends_sentence(char32_t c) { return c == '.' || c == '?' || c == '!'; }
/// Characters that cannot occur inside words.
bool is_non_word(char32_t c) { return is_one_of(c, U")\";}]*:@'({[\u2018\u2019\u201c\u201d\xab\xbb?!"); }
bool is_closing(char32_t c) { return is_one_of(c, U"\"')]}\u2018\u2019\u201c\u201d\xab\xbb"); }
bool starts_word(char32_t c) { return !is_one_of(c, U"(\"`{[:;&#*@)}]-,"); }

std::size_t skip_spaces(View text, std::size_t at) {
  while (at < text.size() && is_space(text[at])) ++at;
  return at;
}
std::size_t skip_word(View text, std::size_t at) {
  while (at < text.size() && !is_space(text[at])) ++at;
  return at;
}

/// Length of a run of hyphens, dots, or dots separated by one space, starting at `at`; 0 if there is none.
std::size_t many_marks(View text, std::size_t at) {
  const auto run = [&](char32_t c) {
    std::size_t end = at;
    while (end < text.size() && text[end] == c) ++end;
    return end - at;
  };
  if (at >= text.size()) return 0;
  if (text[at] == '-') return run('-') >= 2 ? run('-') : 0;
  if (text[at] != '.') return 0;
  if (const std::size_t dots = run('.'); dots >= 2) return dots;
  std::size_t pairs = 0;  // a dot and a space each
  while (at + 2 * pairs + 1 < text.size() && text[at + 2 * pairs] == '.' &&
         is_space(text[at + 2 * pairs + 1]))
    ++pairs;
  const bool dot_follows = at + 2 * pairs < text.size() && text[at + 2 * pairs] == '.';
  if (!dot_follows && pairs > 0) --pairs;
  return pairs >= 2 ? 2 * pairs + 1 : 0;
}

bool ends_word(View line, std::size_t at) {
  const auto ends = [&](std::size_t i) {
    return i == line.size() || is_space(line[i]) || is_non_word(line[i]) || many_marks(line, i) > 0;
  };
  return ends(at) || (line[at] == ',' && ends(at + 1));
}

/// The next word or punctuation mark of a line that has one at or after `at`.
View next_token(View line, std::size_t at) {
  std::size_t size = many_marks(line, at);
  if (size == 0) {
    size = 1;
    if (starts_word(line[at]))
      while (!ends_word(line, at + size)) ++size;
  }
  return line.substr(at, size);
}

/// Lower case with Unicode's context-dependent rules.
std::string lower(View text) {
  std::string plain;
  for (const char32_t c : text) {
    if (c >= 0x80) break;
    plain += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  }
  if (plain.size() == text.size()) return plain;
  std::u16string wide, low;
  for (const char32_t c : text) {
    if (c >= 0x10000) wide += static_cast<char16_t>(0xd7c0 + (c >> 10));
    wide += static_cast<char16_t>(c < 0x10000 ? c : 0xdc00 + (c & 0x3ff));
  }
  low.resize(3 * wide.size());
  UErrorCode error = U_ZERO_ERROR;
  const std::int32_t size = u_strToLower(low.data(), static_cast<std::int32_t>(low.size()), wide.data(),
                                         static_cast<std::int32_t>(wide.size()), "", &error);
  std::string out(static_cast<std::size_t>(size) * 3, '\0');
  std::int32_t bytes = 0;
  u_strToUTF8(out.data(), static_cast<std::int32_t>(out.size()), &bytes, low.data(), size, &error);
  COL_CHECK(U_SUCCESS(error) != 0, "punkt: lower-casing of a word must succeed; got {}", u_errorName(error));
  out.resize(static_cast<std::size_t>(bytes));
  return out;
}

/// Matches -?[.,]?\d[\d,.-]*
bool is_number(View text) {
  std::size_t at = 0;
  if (at < text.size() && text[at] == '-') ++at;
  if (at < text.size() && (text[at] == '.' || text[at] == ',')) ++at;
  if (at >= text.size() || !is_digit(text[at])) return false;
  return std::all_of(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(),
                     [](char32_t c) { return is_digit(c) || c == ',' || c == '.' || c == '-'; });
}

std::vector<std::string> lines_of(const fs::path& folder, const char* name) {
  const fs::path path = folder / name;
  if (!fs::is_regular_file(path))
    throw DataError(fmt::format(
        "{}: a Punkt model must have abbrev_types.txt, collocations.tab, sent_starters.txt and ortho_context.tab; got "
        "no such file; get one with `python3 -m nltk.downloader punkt_tab`",
        path.string()));
  const std::string text = read_file(path);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    if (!lines.back().empty() && lines.back().back() == '\r') lines.back().pop_back();
    at = end + 1;
  }
  return lines;
}

/// The two tab-separated fields of a line.
std::pair<std::string, std::string> fields_of(const fs::path& folder, const char* name,
                                              const std::string& line) {
  const std::size_t tab = line.find('\t');
  if (tab == std::string::npos || line.find('\t', tab + 1) != std::string::npos)
    throw DataError(
        fmt::format("{}: every line must be two fields separated by a tab; got '{}'; copy it again",
                    (folder / name).string(), line));
  return {line.substr(0, tab), line.substr(tab + 1)};
}

}  // namespace

/// A word or punctuation mark with its annotation.
struct Punkt::Token {
  View text;
  std::string type;  // lower case; "##number##" for numbers
  bool ends = false, abbreviation = false, ellipsis = false;

  [[nodiscard]] bool has_period() const { return text.back() == '.'; }
  [[nodiscard]] bool is_initial() const { return text.size() == 2 && is_letter(text[0]) && text[1] == '.'; }
  [[nodiscard]] std::string without_period() const {
    return type.size() > 1 && type.back() == '.' ? type.substr(0, type.size() - 1) : type;
  }
};

/// A potential sentence end at `end`; the next sentence would start at `next`.
struct Punkt::Break {
  std::size_t begin = 0, end = 0, next = 0;
  std::size_t after_begin = 0, after_end = 0;  // following context
  std::size_t word = 0, word_end = 0;          // the word before `begin`
};

struct Punkt::Slice {
  std::size_t begin = 0, end = 0;
};

Punkt::Punkt(const fs::path& folder, bool keep_newlines) : keep_newlines_(keep_newlines) {
  for (std::string& line : lines_of(folder, "abbrev_types.txt")) abbreviations_.insert(std::move(line));
  for (std::string& line : lines_of(folder, "sent_starters.txt")) starters_.insert(std::move(line));
  for (const std::string& line : lines_of(folder, "collocations.tab")) {
    fields_of(folder, "collocations.tab", line);
    collocations_.insert(line);
  }
  for (const std::string& line : lines_of(folder, "ortho_context.tab")) {
    const auto [type, number] = fields_of(folder, "ortho_context.tab", line);
    std::uint32_t flags = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), flags);
    if (error != std::errc{} || end != number.data() + number.size())
      throw DataError(fmt::format("{}: the second field must be a number; got '{}'; copy it again",
                                  (folder / "ortho_context.tab").string(), line));
    cases_[type] = flags;
  }
}

std::uint32_t Punkt::cases_of(const std::string& type) const {
  const auto found = cases_.find(type);
  return found == cases_.end() ? 0 : found->second;
}

/// First pass: annotates a word by itself.
Punkt::Token Punkt::annotate(View text) const {
  Token token{text, is_number(text) ? "##number##" : lower(text)};
  if (text.size() == 1 && ends_sentence(text[0])) {
    token.ends = true;
  } else if (text.size() > 1 && text.find_first_not_of(U'.') == View::npos) {
    token.ellipsis = true;
  } else if (token.has_period() && !text.ends_with(U"..")) {
    const std::string word = lower(text.substr(0, text.size() - 1));
    token.abbreviation =
        abbreviations_.contains(word) || abbreviations_.contains(word.substr(word.rfind('-') + 1));
    token.ends = !token.abbreviation;
  }
  return token;
}

/// Second pass: revises a word that ends with a period by the next word.
void Punkt::annotate_with_next(Token& token, const Token& next) const {
  if (!token.has_period()) return;
  const std::string type = token.without_period();
  const std::string next_type = next.ends ? next.without_period() : next.type;
  const auto abbreviate = [&token] {
    token.ends = false;
    token.abbreviation = true;
  };
  if (collocations_.contains(type + "\t" + next_type)) return abbreviate();
  const std::uint32_t cases = cases_of(next_type);
  const bool upper = is_upper(next.text[0]);
  const bool mark = next.text.size() == 1 && is_one_of(next.text[0], U";:,.!?");
  const bool starts = !mark && upper && (cases & kLower) != 0 && (cases & kMiddleUpper) == 0;
  const bool goes_on =
      mark || (is_lower(next.text[0]) && ((cases & kUpper) != 0 || (cases & kBeginLower) == 0));
  if ((token.abbreviation || token.ellipsis) && !token.is_initial()) {
    if (starts || (upper && starters_.contains(next_type))) {
      token.ends = true;
      return;
    }
  }
  if (!token.is_initial() && type != "##number##") return;
  const bool name = !starts && token.is_initial() && upper && (cases & kLower) == 0;
  if (goes_on || name) abbreviate();
}

/// Whether a word of the context ends a sentence and is followed by another word.
bool Punkt::contains_break(View context) const {
  std::optional<Token> before;
  for (std::size_t begin = 0; begin <= context.size();) {
    const std::size_t end = std::min(context.find(U'\n', begin), context.size());
    View line = context.substr(begin, end - begin);
    if (std::all_of(line.begin(), line.end(), is_stripped)) line = {};
    for (std::size_t at = skip_spaces(line, 0); at < line.size(); at = skip_spaces(line, at)) {
      const Token next = annotate(next_token(line, at));
      at += next.text.size();
      if (before) annotate_with_next(*before, next);
      if (before && before->ends) return true;
      before = next;
    }
    begin = end + 1;
  }
  return false;
}

/// Positions where '.', '?' or '!' is followed by a mark, or by white space and a word. The last one in a
/// word counts.
std::vector<Punkt::Break> Punkt::candidates(View text) const {
  return keep_newlines_ ? candidates_with_space(text) : candidates_before_space(text);
}

Punkt::Break Punkt::break_at(View text, std::size_t begin, std::size_t end, std::size_t after,
                             std::size_t next) {
  Break at{begin, end, next, after, 0, 0, 0};
  at.after_end = is_non_word(text[next]) ? next + 1 : skip_word(text, next);
  if (is_non_word(text[next])) at.next = end;
  return at;
}

std::vector<Punkt::Break> Punkt::candidates_before_space(View text) {
  std::vector<Break> found;
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    if (!ends_sentence(text[i])) continue;
    const std::size_t next = skip_spaces(text, i + 1);
    const bool spaced = next > i + 1;
    if (next == text.size() || (!spaced && !is_non_word(text[next]))) continue;
    found.push_back(break_at(text, i, i + 1, i + 1, next));
    if (!spaced) continue;
    found.back().next = next;
    found.back().after_end = skip_word(text, next);
  }
  return found;
}

std::vector<Punkt::Break> Punkt::candidates_with_space(View text) {
  std::vector<Break> found;
  for (std::size_t run = skip_spaces(text, 0); run < text.size();) {
    const std::size_t run_end = skip_word(text, run);
    const std::size_t next_run = skip_spaces(text, run_end);
    std::size_t last = run_end;  // end of the last mark that is followed by something
    while (last > run && !(ends_sentence(text[last - 1]) && (last < run_end || next_run < text.size())))
      --last;
    if (last > run) {
      const std::size_t end = last < run_end ? last : next_run;
      found.push_back(break_at(text, run, end, end, end));
      run = end;
      if (last < run_end) run = skip_spaces(text, run_end);  // later marks of this run do not count
    } else {
      run = next_run;
    }
  }
  return found;
}

std::vector<Punkt::Slice> Punkt::slices(View text) const {
  std::vector<Slice> out;
  std::size_t sentence = 0;
  std::u32string context;
  const auto add_if_break = [&](const Break& at) {
    context.assign(text.substr(at.word, at.word_end - at.word));
    context += text.substr(at.begin, at.end - at.begin);
    context += text.substr(at.after_begin, at.after_end - at.after_begin);
    if (!contains_break(context)) return;
    out.push_back({sentence, at.end});
    sentence = at.next;
  };
  std::optional<Break> before;
  for (Break at : candidates(text)) {
    const std::size_t word = before ? before->word : 0, from = before ? before->word_end : 0;
    std::size_t space = at.begin;  // last white space between the previous word and this one
    while (space > from && !is_ascii_space(text[space - 1])) --space;
    // White space directly after the previous word does not count, as in NLTK.
    at.word = space > from + 1 ? space : word;
    at.word_end = at.begin;
    if (before && before->word_end <= at.word) add_if_break(*before);
    before = at;
  }
  if (before) add_if_break(*before);
  std::size_t end = text.size();
  while (end > 0 && is_stripped(text[end - 1])) --end;
  out.push_back({sentence, end});
  return out;
}

/// End of the quotation marks and brackets at the start of a sentence that close the previous one;
/// `next.begin` if there are none.
std::size_t Punkt::closing_marks(View text, const Slice& next) {
  std::size_t end = next.begin;
  while (end < next.end && is_closing(text[end])) ++end;
  const bool alone = end == next.end || is_space(text[end]);
  const bool dashes = end + 1 < next.end && text[end] == '-' && text[end + 1] == '-';
  return alone || dashes ? end : next.begin;
}

void Punkt::split_block(View text, const std::function<void(std::size_t, std::size_t)>& add) const {
  const std::vector<Slice> found = slices(text);
  std::size_t begin = found.empty() ? 0 : found[0].begin;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (i + 1 == found.size()) {
      add(begin, found[i].end);
      break;
    }
    const Slice& next = found[i + 1];
    std::size_t closed = closing_marks(text, next);
    add(begin, closed > next.begin ? closed : found[i].end);
    if (closed > next.begin)
      while (closed < next.end && is_space(text[closed])) ++closed;
    begin = closed;
  }
}

std::vector<std::string_view> Punkt::split(std::string_view text) const {
  std::vector<std::string_view> sentences;
  std::u32string block;
  std::vector<std::size_t> bytes;  // byte offset of each character of the block
  for (std::size_t at = 0; at < text.size();) {
    block.clear();
    bytes.clear();
    while (at < text.size() && block.size() < kBlock) {
      const tokenizers::Decoded next = tokenizers::decode_utf8(text.data() + at);
      bytes.push_back(at);
      block += next.value;
      at += static_cast<std::size_t>(next.size);
    }
    bytes.push_back(at);
    split_block(block, [&](std::size_t begin, std::size_t end) {
      if (begin < end) sentences.push_back(text.substr(bytes[begin], bytes[end] - bytes[begin]));
    });
  }
  return sentences;
}

}  // namespace colonnade::preprocess
