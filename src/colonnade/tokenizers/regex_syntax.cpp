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

constexpr std::size_t kLongest = 10'000;
constexpr int kDeepest = 100;
constexpr int kMostRepeats = 10'000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_ascii(char c) { return static_cast<signed char>(c) >= 0; }

class Reader {
 public:
  Reader(const std::string& pattern, const std::string& where) : pattern_(pattern), where_(where) {}

  std::string run() {
    if (pattern_.empty() || pattern_.size() > kLongest) refuse(fmt::format("{} bytes", pattern_.size()));
    alternatives();
    if (at_ < pattern_.size()) refuse("a ) without its (");
    return result_;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw DataError(fmt::format(
        "{} must be a regular expression that means the same here as in Oniguruma; got {} in '{}'; "
        "write it in another way",
        where_, what, pattern_.substr(0, 200)));
  }
  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  [[nodiscard]] bool starts(std::string_view text) const {
    return std::string_view(pattern_).substr(at_).starts_with(text);
  }
  void take(std::size_t count) {
    result_.append(pattern_, at_, count);
    at_ += count;
  }
  void put(std::string_view text, std::size_t count) {
    result_ += text;
    at_ += count;
  }

  // Each returns whether what it read may match no character.
  bool alternatives() {
    bool empty = sequence();
    while (peek() == '|') {
      take(1);
      fold_ = '\0';
      empty = sequence() || empty;
    }
    return empty;
  }
  bool sequence() {
    bool empty = true;
    while (at_ < pattern_.size() && peek() != '|' && peek() != ')') {
      if (starts("(?i)")) return rest_in_any_case() && empty;
      empty = item() && empty;
    }
    return empty;
  }
  /// (?i) takes all up to the end of the group around it, alternatives too: a(?i)b|c is a(?i:b|c).
  bool rest_in_any_case() {
    if (++depth_ > kDeepest) refuse(fmt::format("more than {} groups in one another", kDeepest));
    const bool was_any_case = std::exchange(any_case_, true);
    put("(?i:", 4);
    const bool empty = alternatives();
    put(")", 0);
    any_case_ = was_any_case;
    --depth_;
    return empty;
  }
  bool item() {
    bool repeatable = true;
    const bool empty = atom(repeatable);
    int least = 1, most = 1;
    if (!repeat(least, most)) return empty;
    if (!repeatable) refuse("a repeated assertion");
    if (most > 1 && empty) refuse("a repeat of what may be empty");
    if (most > 1 && fold_ != '\0') refuse("a repeated s or f in any case");
    if (std::string_view("*+?{").find(peek()) != std::string_view::npos && at_ < pattern_.size())
      refuse("a repeat of a repeat");
    return empty || least == 0;
  }

  bool repeat(int& least, int& most) {
    const char c = peek();
    if (c == '{') return counted(least, most), true;
    if (at_ == pattern_.size() || (c != '*' && c != '+' && c != '?')) return false;
    least = c == '+' ? 1 : 0;
    most = c == '?' ? 1 : kMostRepeats;
    take(peek(1) == '?' || peek(1) == '+' ? 2 : 1);
    return true;
  }
  /// {n} {n,} {n,m}, the latter two also lazy.
  void counted(int& least, int& most) {
    const std::size_t end = pattern_.find('}', at_);
    const std::string inside = end == std::string::npos ? "" : pattern_.substr(at_ + 1, end - at_ - 1);
    const std::size_t comma = std::min(inside.find(','), inside.size());
    const auto number = [&](const std::string& digits) {
      if (digits.empty() || digits.size() > 5 || !std::all_of(digits.begin(), digits.end(), is_digit))
        refuse(fmt::format("{{{}", inside.substr(0, 20)));
      return std::stoi(digits);
    };
    least = most = number(inside.substr(0, comma));
    const bool exact = comma == inside.size();
    if (!exact) most = comma + 1 == inside.size() ? kMostRepeats : number(inside.substr(comma + 1));
    if (least > most || most > kMostRepeats) refuse(fmt::format("{{{}}}", inside));
    take(inside.size() + 2);
    if (peek() == '+') refuse("}+");
    if (peek() != '?') return;
    if (exact) refuse("{n}?");
    take(1);
  }

  bool atom(bool& repeatable) {
    const char c = peek();
    if (c == '(') return group(repeatable);
    if (!any_case_) fold_ = '\0';
    if (c == '^' || c == '$') {
      repeatable = false;
      return take(1), true;
    }
    if (starts("\\b") || starts("\\B")) {
      repeatable = false;
      return word_border(peek(1) == 'b'), true;
    }
    if (c == '[') {
      set();
    } else if (c == '\\') {
      bool single = false;
      escape(false, single);
    } else if (c == '*' || c == '+' || c == '?' || c == '{') {
      refuse(fmt::format("{} behind nothing", c));
    } else {
      if (any_case_ && !is_ascii(c)) refuse("other characters than ASCII in any case");
      if (any_case_) follow(c);
      take(1);
      while (at_ < pattern_.size() && (peek() & 0xC0) == 0x80) take(1);
    }
    return false;
  }

  /// Oniguruma takes some letters for one of two: ss for U+00DF, fi for U+FB01.
  void follow(char c) {
    const char low = static_cast<char>(c | 0x20);
    const std::string_view second = fold_ == 's' ? "st" : fold_ == 'f' ? "fil" : "";
    if (is_letter(c) && second.find(low) != std::string_view::npos)
      refuse(fmt::format("{}{} in any case", fold_, low));
    fold_ = is_letter(c) && (low == 's' || low == 'f') ? low : '\0';
  }

  bool group(bool& repeatable) {
    if (++depth_ > kDeepest) refuse(fmt::format("more than {} groups in one another", kDeepest));
    std::size_t size = 1;
    const bool was_any_case = any_case_;
    if (peek(1) == '?') {
      size = 0;
      for (const std::string_view kind : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:"})
        if (starts(kind)) size = kind.size();
      if (size == 0) refuse(fmt::format("(?{}", peek(2)));
      any_case_ = any_case_ || peek(2) == 'i';
    }
    const bool asserts = peek(size - 1) == '=' || peek(size - 1) == '!';
    take(size);
    const bool empty = alternatives();
    if (peek() != ')' || at_ == pattern_.size()) refuse("a ( without its )");
    take(1);
    any_case_ = was_any_case;
    repeatable = !asserts;
    --depth_;
    return empty || asserts;
  }

  void set() {
    if (any_case_ && fold_ != '\0') refuse("a class behind an s or f in any case");
    std::string before = std::exchange(result_, "");
    const std::string text = set_text();
    result_ = std::move(before) + text;
    fold_ = any_case_ ? 's' : '\0';
  }
  /// From [ to its ]: a class, or a group that matches the same one character, for PCRE2 knows no classes in
  /// classes.
  std::string set_text() {
    if (++depth_ > kDeepest) refuse(fmt::format("more than {} classes in one another", kDeepest));
    ++at_;
    const bool inverse = peek() == '^';
    if (inverse && any_case_) refuse("[^ in any case");
    at_ += inverse ? 1 : 0;
    std::vector<std::string> parts{union_text()};
    for (; starts("&&"); parts.push_back(union_text())) {
      if (any_case_) refuse("&& in any case");
      at_ += 2;
      if (peek() == '-') refuse("- behind &&");
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
  /// Members up to && or ], as a class or, with inverse classes among them, alternatives.
  std::string union_text() {
    std::string before = std::exchange(result_, "");
    std::string nested;
    bool range_may_follow = false;  // behind one character that ends no range
    bool first = true;
    for (; at_ < pattern_.size() && peek() != ']' && !starts("&&"); first = false) {
      if (peek() == '-') {
        hyphen(first, range_may_follow);
        range_may_follow = false;
      } else if (starts("\\W")) {
        if (any_case_) refuse("\\W in any case");
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
          refuse("[ in a class in any case");
        } else if (const std::string inner = set_text(); inner[0] == '[' && inner[1] != '^') {
          result_.append(inner, 1, inner.size() - 2);
        } else {
          nested += "|" + inner;
        }
      }
    }
    if (at_ >= pattern_.size()) refuse("a [ without its ]");
    if (first) refuse("an empty class");
    const std::string members = std::exchange(result_, std::move(before));
    const std::string plain = members.empty() ? "" : fmt::format("[{}]", members);
    return nested.empty() ? plain
                          : fmt::format("(?:{}{})", plain, members.empty() ? nested.substr(1) : nested);
  }
  /// [:name:] and [:^name:] in a class. What cannot be a member of a class of PCRE2 is returned as an
  /// alternative.
  std::string posix() {
    const std::size_t end = std::min(pattern_.find(":]", at_), pattern_.size());
    const std::string name = pattern_.substr(at_ + 2, end - at_ - 2);
    if (any_case_) refuse("a POSIX class in any case");
    const auto* found = std::ranges::find(kPosix, name, &Named::name);
    const bool inverse = found == std::end(kPosix) && name.starts_with('^');
    if (inverse) found = std::ranges::find(kPosix, std::string_view(name).substr(1), &Named::name);
    if (found == std::end(kPosix)) refuse(fmt::format("[:{}:]", name.substr(0, 20)));
    put(inverse ? "" : found->text, end + 2 - at_);
    return inverse ? fmt::format("|[^{}]", found->text) : "";
  }
  /// A - in a class: itself at both ends, else what a range goes on with behind its first character.
  void hyphen(bool first, bool range_may_follow) {
    if (first || peek(1) == ']') {
      put("\\-", 1);
      if (first && peek() == '-') refuse("a range from -");
      return;
    }
    if (!range_may_follow) refuse("a - that is neither first nor last nor in a range");
    take(1);
    if (!member()) refuse("a range that ends with a class");
  }
  /// A member of a class; whether it is one character.
  bool member() {
    const char c = peek();
    if (c == '\\') {
      bool single = true;
      escape(true, single);
      return single;
    }
    if (c == '[' || (c == '&' && peek(1) == '&')) refuse("a range that ends with a class");
    if (any_case_ && !is_ascii(c)) refuse("other characters than ASCII in any case");
    take(1);
    while (at_ < pattern_.size() && (peek() & 0xC0) == 0x80) take(1);
    return true;
  }

  /// \b, \B with Oniguruma's word characters.
  void word_border(bool is_one) {
    if (any_case_) refuse(fmt::format("\\{} in any case", peek(1)));
    const char* beside = is_one ? "!" : "=";
    const char* apart = is_one ? "=" : "!";
    put(fmt::format("(?:(?<=[{0}])(?{1}[{0}])|(?<![{0}])(?{2}[{0}]))", kLoneWord, beside, apart), 2);
  }

  void escape(bool in_set, bool& single) {
    const char c = peek(1);
    single = false;
    if (any_case_ && (is_letter(c) && std::string_view("sdrnt").find(c) == std::string_view::npos))
      refuse(fmt::format("\\{} in any case", c));
    switch (c) {
      case 's':
      case 'w': {
        if (in_set) return put(c == 's' ? kSpace : kWord, 2);
        return put(fmt::format("[{}]", c == 's' ? kSpace : kLoneWord), 2);
      }
      case 'S':
        return put(in_set ? R"(\P{White_Space})" : fmt::format("[^{}]", kSpace), 2);
      case 'W':
        if (in_set) refuse("a range that ends with a class");
        return put(fmt::format("[^{}]", kLoneWord), 2);
      case 'd':
      case 'D':
        return take(2);
      case 'p':
      case 'P':
        return property();
      default:
        single = true;
        one_character(c);
    }
  }
  void one_character(char c) {
    if (!is_letter(c)) {
      if (c <= ' ' || c == 0x7F || is_digit(c)) refuse(fmt::format("\\ before the byte {}", c & 0xFF));
      if (any_case_) follow(c);
      return take(2);
    }
    if (std::string_view("nrtfae").find(c) != std::string_view::npos) return take(2);
    if (c == 'v') return put("\\x{0b}", 2);
    if (c == 'u') return hex(2, 4, 4, 6);
    if (c != 'x') refuse(fmt::format("\\{}", c));
    if (peek(2) != '{') {
      if (peek(2) > '7') refuse("\\x of a byte above 7f");
      return hex(2, 2, 2, 4);
    }
    const std::size_t end = pattern_.find('}', at_);
    if (end == std::string::npos) refuse("\\x{");
    hex(3, end - at_ - 3, 6, end + 1 - at_);
  }
  /// \x{...} of `digits` digits, at most `most`.
  void hex(std::size_t from, std::size_t digits, std::size_t most, std::size_t count) {
    const std::string text = pattern_.substr(at_ + from, digits);
    if (text.empty() || text.size() != digits || digits > most ||
        !std::all_of(text.begin(), text.end(), is_hex))
      refuse(fmt::format("\\{}", peek(1)));
    put(fmt::format("\\x{{{}}}", text), count);
  }
  /// \p{Name}, \P{Name}, \p{^Name}
  void property() {
    const std::size_t end = pattern_.find('}', at_);
    const char kind = peek(1);
    if (peek(2) != '{' || end == std::string::npos) refuse(fmt::format("\\{} without braces", kind));
    std::string name;
    const bool inverse = peek(3) == '^';
    for (std::size_t i = at_ + (inverse ? 4 : 3); i < end; ++i)
      if (const char c = pattern_[i]; c != ' ' && c != '-' && c != '_')
        name += static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
    const auto* found = std::ranges::find(kProperties, name, &Named::name);
    if ((inverse && kind == 'P') || found == std::end(kProperties))
      refuse(fmt::format("\\{}", pattern_.substr(at_ + 1, std::min<std::size_t>(end - at_, 40))));
    put(fmt::format("\\{}{{{}}}", inverse ? 'P' : kind, found->text), end + 1 - at_);
  }

  const std::string& pattern_;
  const std::string& where_;
  std::string result_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool any_case_ = false;
  char fold_ = '\0';  ///< the letter before, where Oniguruma might take it and the next one for one
};

}  // namespace

std::string regex_for_pcre2(const std::string& pattern, const std::string& where) {
  return Reader(pattern, where).run();
}

}  // namespace colonnade::tokenizers
