// See regex_syntax.h.
#include "colonnade/tokenizers/regex_syntax.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "colonnade/base/error.h"
#include "colonnade/tokenizers/regex_names.h"

namespace colonnade::tokenizers {
namespace {

using namespace regex_names;

constexpr std::size_t kMaxBytes = 10'000;
constexpr int kMaxDepth = 100;
constexpr int kMaxRepeats = 10'000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_ascii(char c) { return static_cast<signed char>(c) >= 0; }

class Translator {
 public:
  Translator(const std::string& pattern, const std::string& where) : pattern_(pattern), where_(where) {}

  std::string run() {
    if (pattern_.empty() || pattern_.size() > kMaxBytes) reject(fmt::format("{} bytes", pattern_.size()));
    alternatives();
    if (at_ < pattern_.size()) reject("a ) without its (");
    return result_;
  }

 private:
  [[noreturn]] void reject(const std::string& what) const {
    throw DataError(fmt::format(
        "{} must be a regular expression that means the same here as in Oniguruma; got {} in '{}'; "
        "rewrite it",
        where_, what, pattern_.substr(0, 200)));
  }
  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  [[nodiscard]] bool starts(std::string_view text) const {
    return std::string_view(pattern_).substr(at_).starts_with(text);
  }
  void copy(std::size_t count) {
    result_.append(pattern_, at_, count);
    at_ += count;
  }
  void emit(std::string_view text, std::size_t count) {
    result_ += text;
    at_ += count;
  }

  // Each of these returns whether the expression it read may match the empty string.
  bool alternatives() {
    bool empty = sequence();
    while (peek() == '|') {
      copy(1);
      fold_ = '\0';
      empty = sequence() || empty;
    }
    return empty;
  }
  bool sequence() {
    bool empty = true;
    while (at_ < pattern_.size() && peek() != '|' && peek() != ')') {
      if (starts("(?i)")) return rest_of_group_in_any_case() && empty;
      empty = item() && empty;
    }
    return empty;
  }
  /// (?i) extends to the end of the enclosing group, over alternatives too: a(?i)b|c is a(?i:b|c).
  bool rest_of_group_in_any_case() {
    if (++depth_ > kMaxDepth) reject(fmt::format("more than {} nested groups", kMaxDepth));
    const bool was_any_case = std::exchange(any_case_, true);
    emit("(?i:", 4);
    const bool empty = alternatives();
    emit(")", 0);
    any_case_ = was_any_case;
    --depth_;
    return empty;
  }
  bool item() {
    bool repeatable = true;
    const bool empty = atom(repeatable);
    int least = 1, most = 1;
    if (!repeat(least, most)) return empty;
    if (!repeatable) reject("a repeated assertion");
    if (most > 1 && empty) reject("a repeat of an expression that may be empty");
    if (most > 1 && fold_ != '\0') reject("a repeated s or f in any case");
    if (std::string_view("*+?{").find(peek()) != std::string_view::npos && at_ < pattern_.size())
      reject("a repeat of a repeat");
    return empty || least == 0;
  }

  bool repeat(int& least, int& most) {
    const char c = peek();
    if (c == '{') return counted(least, most), true;
    if (at_ == pattern_.size() || (c != '*' && c != '+' && c != '?')) return false;
    least = c == '+' ? 1 : 0;
    most = c == '?' ? 1 : kMaxRepeats;
    copy(peek(1) == '?' || peek(1) == '+' ? 2 : 1);
    return true;
  }
  /// Reads {n}, {n,} or {n,m}; the latter two may be lazy.
  void counted(int& least, int& most) {
    const std::size_t end = pattern_.find('}', at_);
    const std::string inside = end == std::string::npos ? "" : pattern_.substr(at_ + 1, end - at_ - 1);
    const std::size_t comma = std::min(inside.find(','), inside.size());
    const auto number = [&](const std::string& digits) {
      if (digits.empty() || digits.size() > 5 || !std::all_of(digits.begin(), digits.end(), is_digit))
        reject(fmt::format("{{{}", inside.substr(0, 20)));
      return std::stoi(digits);
    };
    least = most = number(inside.substr(0, comma));
    const bool exact = comma == inside.size();
    if (!exact) most = comma + 1 == inside.size() ? kMaxRepeats : number(inside.substr(comma + 1));
    if (least > most || most > kMaxRepeats) reject(fmt::format("{{{}}}", inside));
    copy(inside.size() + 2);
    if (peek() == '+') reject("}+");
    if (peek() != '?') return;
    if (exact) reject("{n}?");
    copy(1);
  }

  bool atom(bool& repeatable) {
    const char c = peek();
    if (c == '(') return group(repeatable);
    if (!any_case_) fold_ = '\0';
    if (c == '^' || c == '$') {
      repeatable = false;
      return copy(1), true;
    }
    if (starts("\\b") || starts("\\B")) {
      repeatable = false;
      return word_boundary(peek(1) == 'b'), true;
    }
    if (c == '[') {
      set();
    } else if (c == '\\') {
      bool single = false;
      escape(false, single);
    } else if (c == '*' || c == '+' || c == '?' || c == '{') {
      reject(fmt::format("{} after nothing", c));
    } else {
      if (any_case_ && !is_ascii(c)) reject("non-ASCII characters in any case");
      if (any_case_) check_folding(c);
      copy(1);
      while (at_ < pattern_.size() && (peek() & 0xC0) == 0x80) copy(1);
    }
    return false;
  }

  /// Ignoring case, Oniguruma matches some letter pairs as one character: ss as U+00DF, fi as U+FB01.
  void check_folding(char c) {
    const char low = static_cast<char>(c | 0x20);
    const std::string_view second = fold_ == 's' ? "st" : fold_ == 'f' ? "fil" : "";
    if (is_letter(c) && second.find(low) != std::string_view::npos)
      reject(fmt::format("{}{} in any case", fold_, low));
    fold_ = is_letter(c) && (low == 's' || low == 'f') ? low : '\0';
  }

  bool group(bool& repeatable) {
    if (++depth_ > kMaxDepth) reject(fmt::format("more than {} nested groups", kMaxDepth));
    std::size_t size = 1;
    const bool was_any_case = any_case_;
    if (peek(1) == '?') {
      size = 0;
      for (const std::string_view kind : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:"})
        if (starts(kind)) size = kind.size();
      if (size == 0) reject(fmt::format("(?{}", peek(2)));
      any_case_ = any_case_ || peek(2) == 'i';
    }
    const bool asserts = peek(size - 1) == '=' || peek(size - 1) == '!';
    copy(size);
    const bool empty = alternatives();
    if (peek() != ')' || at_ == pattern_.size()) reject("a ( without its )");
    copy(1);
    any_case_ = was_any_case;
    repeatable = !asserts;
    --depth_;
    return empty || asserts;
  }

  void set() {
    if (any_case_ && fold_ != '\0') reject("a class after an s or f in any case");
    std::string before = std::exchange(result_, "");
    const std::string text = set_text();
    result_ = std::move(before) + text;
    fold_ = any_case_ ? 's' : '\0';
  }
  /// Translates from [ to its ]: to a class, or to a group that matches the same character, because PCRE2 has
  /// no nested classes.
  std::string set_text() {
    if (++depth_ > kMaxDepth) reject(fmt::format("more than {} nested classes", kMaxDepth));
    ++at_;
    const bool inverse = peek() == '^';
    if (inverse && any_case_) reject("[^ in any case");
    at_ += inverse ? 1 : 0;
    std::vector<std::string> parts{union_text()};
    for (; starts("&&"); parts.push_back(union_text())) {
      if (any_case_) reject("&& in any case");
      at_ += 2;
      if (peek() == '-') reject("- after &&");
    }
    ++at_;
    --depth_;
    std::string text = std::move(parts.back());
    parts.pop_back();
    if (parts.empty() && text[0] == '[' && text[1] != '^') return inverse ? "[^" + text.substr(1) : text;
    for (auto part = parts.rbegin(); part != parts.rend(); ++part)
      text = fmt::format("(?={}){}", *part, text);
    return inverse ? fmt::format(R"((?:(?!{})[\x{{0}}-\x{{10ffff}}]))", text) : fmt::format("(?:{})", text);
  }
  /// Translates members up to && or ]: to a class, or to alternatives if there are inverse classes among
  /// them.
  std::string union_text() {
    std::string before = std::exchange(result_, "");
    std::string nested;
    bool range_may_follow = false;  // after a character that ends no range
    bool first = true;
    for (; at_ < pattern_.size() && peek() != ']' && !starts("&&"); first = false) {
      if (peek() == '-') {
        hyphen(first, range_may_follow);
        range_may_follow = false;
      } else if (starts("\\W")) {
        if (any_case_) reject("\\W in any case");
        nested += fmt::format("|[^{}]", kWord);
        at_ += 2;
        range_may_follow = false;
      } else if (peek() != '[') {
        range_may_follow = member();
      } else {
        range_may_follow = false;
        if (starts("[:")) {
          nested += posix();
        } else if (any_case_) {
          reject("[ in a class in any case");
        } else if (const std::string inner = set_text(); inner[0] == '[' && inner[1] != '^') {
          result_.append(inner, 1, inner.size() - 2);
        } else {
          nested += "|" + inner;
        }
      }
    }
    if (at_ >= pattern_.size()) reject("a [ without its ]");
    if (first) reject("an empty class");
    const std::string members = std::exchange(result_, std::move(before));
    const std::string plain = members.empty() ? "" : fmt::format("[{}]", members);
    return nested.empty() ? plain
                          : fmt::format("(?:{}{})", plain, members.empty() ? nested.substr(1) : nested);
  }
  /// Translates [:name:] and [:^name:] in a class. Returns the alternative for one that PCRE2 does not allow
  /// there.
  std::string posix() {
    const std::size_t end = std::min(pattern_.find(":]", at_), pattern_.size());
    const std::string name = pattern_.substr(at_ + 2, end - at_ - 2);
    if (any_case_) reject("a POSIX class in any case");
    const auto* found = std::ranges::find(kPosix, name, &NameMapping::name);
    const bool inverse = found == std::end(kPosix) && name.starts_with('^');
    if (inverse) found = std::ranges::find(kPosix, std::string_view(name).substr(1), &NameMapping::name);
    if (found == std::end(kPosix)) reject(fmt::format("[:{}:]", name.substr(0, 20)));
    emit(inverse ? "" : found->text, end + 2 - at_);
    return inverse ? fmt::format("|[^{}]", found->text) : "";
  }
  /// Reads a - in a class: a literal at either end, else the middle of a range.
  void hyphen(bool first, bool range_may_follow) {
    if (first || peek(1) == ']') {
      emit("\\-", 1);
      if (first && peek() == '-') reject("a range from -");
      return;
    }
    if (!range_may_follow) reject("a - that is neither first nor last nor in a range");
    copy(1);
    if (!member()) reject("a range that ends with a class");
  }
  /// Reads a member of a class; returns whether it is a single character.
  bool member() {
    const char c = peek();
    if (c == '\\') {
      bool single = true;
      escape(true, single);
      return single;
    }
    if (c == '[' || (c == '&' && peek(1) == '&')) reject("a range that ends with a class");
    if (any_case_ && !is_ascii(c)) reject("non-ASCII characters in any case");
    copy(1);
    while (at_ < pattern_.size() && (peek() & 0xC0) == 0x80) copy(1);
    return true;
  }

  /// Translates \b and \B with Oniguruma's word characters.
  void word_boundary(bool positive) {
    if (any_case_) reject(fmt::format("\\{} in any case", peek(1)));
    const char* after_word = positive ? "!" : "=";
    const char* after_other = positive ? "=" : "!";
    emit(fmt::format("(?:(?<=[{0}])(?{1}[{0}])|(?<![{0}])(?{2}[{0}]))", kWordOutsideClass, after_word,
                     after_other),
         2);
  }

  void escape(bool in_set, bool& single) {
    const char c = peek(1);
    single = false;
    if (any_case_ && (is_letter(c) && std::string_view("sdrnt").find(c) == std::string_view::npos))
      reject(fmt::format("\\{} in any case", c));
    switch (c) {
      case 's':
      case 'w': {
        if (in_set) return emit(c == 's' ? kSpace : kWord, 2);
        return emit(fmt::format("[{}]", c == 's' ? kSpace : kWordOutsideClass), 2);
      }
      case 'S':
        return emit(in_set ? R"(\P{White_Space})" : fmt::format("[^{}]", kSpace), 2);
      case 'W':
        if (in_set) reject("a range that ends with a class");
        return emit(fmt::format("[^{}]", kWordOutsideClass), 2);
      case 'd':
      case 'D':
        return copy(2);
      case 'p':
      case 'P':
        return property();
      default:
        single = true;
        single_character(c);
    }
  }
  void single_character(char c) {
    if (!is_letter(c)) {
      if (c <= ' ' || c == 0x7F || is_digit(c)) reject(fmt::format("\\ before the byte {}", c & 0xFF));
      if (any_case_) check_folding(c);
      return copy(2);
    }
    if (std::string_view("nrtfae").find(c) != std::string_view::npos) return copy(2);
    if (c == 'v') return emit("\\x{0b}", 2);
    if (c == 'u') return hex(2, 4, 4, 6);
    if (c != 'x') reject(fmt::format("\\{}", c));
    if (peek(2) != '{') {
      if (peek(2) > '7') reject("\\x of a byte above 7f");
      return hex(2, 2, 2, 4);
    }
    const std::size_t end = pattern_.find('}', at_);
    if (end == std::string::npos) reject("\\x{");
    hex(3, end - at_ - 3, 6, end + 1 - at_);
  }
  /// Emits \x{...} with `digits` digits, at most `most`.
  void hex(std::size_t from, std::size_t digits, std::size_t most, std::size_t count) {
    const std::string text = pattern_.substr(at_ + from, digits);
    if (text.empty() || text.size() != digits || digits > most ||
        !std::all_of(text.begin(), text.end(), is_hex))
      reject(fmt::format("\\{}", peek(1)));
    emit(fmt::format("\\x{{{}}}", text), count);
  }
  /// Translates \p{Name}, \P{Name} and \p{^Name}.
  void property() {
    const std::size_t end = pattern_.find('}', at_);
    const char kind = peek(1);
    if (peek(2) != '{' || end == std::string::npos) reject(fmt::format("\\{} without braces", kind));
    std::string name;
    const bool inverse = peek(3) == '^';
    for (std::size_t i = at_ + (inverse ? 4 : 3); i < end; ++i)
      if (const char c = pattern_[i]; c != ' ' && c != '-' && c != '_')
        name += static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
    const auto* found = std::ranges::find(kProperties, name, &NameMapping::name);
    if ((inverse && kind == 'P') || found == std::end(kProperties))
      reject(fmt::format("\\{}", pattern_.substr(at_ + 1, std::min<std::size_t>(end - at_, 40))));
    emit(fmt::format("\\{}{{{}}}", inverse ? 'P' : kind, found->text), end + 1 - at_);
  }

  const std::string& pattern_;
  const std::string& where_;
  std::string result_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool any_case_ = false;
  char fold_ = '\0';  ///< previous letter, if Oniguruma may fold it with the next one
};

}  // namespace

std::string regex_for_pcre2(const std::string& pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

}  // namespace colonnade::tokenizers
