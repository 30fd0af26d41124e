// See regex.h. The only file that sees PCRE2.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "colonnade/data/tokenizers/regex.h"

#include <pcre2.h>

#include <array>

#include "colonnade/base/error.h"

namespace colonnade::data {
namespace {

constexpr std::uint32_t kMostSteps =
    10'000'000;  // of one match: a limit for expressions that backtrack without end
constexpr std::size_t kLongest = 10'000;

constexpr const char* kSpace =
    R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr const char* kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

/// Rewrites what PCRE2 reads differently, and refuses what cannot be rewritten.
class Translation {
 public:
  Translation(const std::string& pattern, const std::string& where) : pattern_(pattern), where_(where) {}

  std::string run() {
    if (pattern_.empty() || pattern_.size() > kLongest) refuse(fmt::format("{} bytes", pattern_.size()));
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        member(c);
      } else {
        outside(c);
      }
    }
    return result_;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw DataError(fmt::format(
        "{}: must be a regular expression that means the same here as in Oniguruma; got {} in '{}'; "
        "write it in another way",
        where_, what, pattern_.substr(0, 200)));
  }
  [[nodiscard]] char next(std::size_t ahead = 1) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  void take(std::size_t count) {
    result_ += pattern_.substr(at_, count);
    at_ += count;
  }
  void put(const std::string& text, std::size_t count) {
    result_ += text;
    at_ += count;
  }

  void escape() {
    const char c = next();
    if (c == 's' || c == 'w') return put(in_class_ ? set_of(c) : fmt::format("[{}]", set_of(c)), 2);
    if (c == 'S' || c == 'W') {
      if (in_class_) return put(c == 'S' ? R"(\P{White_Space})" : (refuse(R"(\W in a class)"), ""), 2);
      return put(fmt::format("[^{}]", set_of(c == 'S' ? 's' : 'w')), 2);
    }
    const bool letter =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '\0';
    if (letter && std::string_view("dDpPrntfvaexu").find(c) == std::string_view::npos)
      refuse(fmt::format("\\{}", c));
    if (c == 'u') return unicode_escape();
    const std::size_t end = next(2) == '{' ? pattern_.find('}', at_) : std::string::npos;
    if ((c == 'p' || c == 'P' || c == 'x') && end != std::string::npos) return take(end + 1 - at_);
    take(2);
  }
  /// \uHHHH is \x{HHHH} in PCRE2.
  void unicode_escape() {
    const std::string digits = pattern_.substr(at_ + 2, 4);
    if (digits.size() != 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
      refuse(R"(\u)");
    put(fmt::format("\\x{{{}}}", digits), 6);
  }
  [[nodiscard]] static std::string set_of(char c) { return c == 's' ? kSpace : kWord; }

  void member(char c) {
    if (c == '&' && next() == '&') refuse("&&");
    if (c == '[') refuse("[ in a class");
    if (c == ']' && at_ > class_begin_) in_class_ = false;
    take(1);
  }
  void outside(char c) {
    if (c == '[') {
      in_class_ = true;
      take(next() == '^' ? 2 : 1);
      class_begin_ = at_;
      if (at_ < pattern_.size() && pattern_[at_] == ']') refuse("an empty class");
      return;
    }
    if (c == '(' && next() == '?') {
      const char kind = next(2);
      const bool looks_back = kind == '<' && (next(3) == '=' || next(3) == '!');
      const bool fits = kind == ':' || kind == '=' || kind == '!' || kind == '>' || looks_back ||
                        (kind == 'i' && next(3) == ':');
      if (!fits) refuse(fmt::format("(?{}", kind));
    }
    if (c == '(' && next() == '*') refuse("(*");
    if (c == '{' && next() == ',') refuse("{,");
    if (c == '}' && next() == '+') refuse("}+");  // repeats in Oniguruma, is possessive in PCRE2
    take(1);
  }

  const std::string& pattern_;
  const std::string& where_;
  std::string result_;
  std::size_t at_ = 0, class_begin_ = 0;
  bool in_class_ = false;
};

struct Deleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

}  // namespace

struct Regex::State {
  std::unique_ptr<pcre2_code, Deleter> code;
  std::unique_ptr<pcre2_match_context, Deleter> context;
  std::string pattern, where;
};

Regex::Regex(const std::string& pattern, const std::string& where) : state_(std::make_unique<State>()) {
  const std::string text = Translation(pattern, where).run();
  int error = 0;
  std::size_t offset = 0;
  state_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_UTF_CHECK, &error,
                                   &offset, nullptr));
  if (state_->code == nullptr) {
    std::array<unsigned char, 200> message{};
    pcre2_get_error_message(error, message.data(), message.size());
    throw DataError(fmt::format("{}: must be a regular expression; got '{}' ({}); mend it", where,
                                pattern.substr(0, 200), reinterpret_cast<const char*>(message.data())));
  }
  pcre2_jit_compile(state_->code.get(), PCRE2_JIT_COMPLETE);  // without it the interpreter runs
  state_->context.reset(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(state_->context.get(), kMostSteps);
  state_->pattern = pattern;
  state_->where = where;
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

void Regex::find(std::string_view text, std::vector<Span>& spans) const {
  const std::unique_ptr<pcre2_match_data, Deleter> data(
      pcre2_match_data_create_from_pattern(state_->code.get(), nullptr));
  std::size_t previous = 0;
  for (std::size_t at = 0; at <= text.size();) {
    const auto match = [&](std::uint32_t options) {
      return pcre2_match(state_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                         PCRE2_NO_UTF_CHECK | options, data.get(), state_->context.get());
    };
    int found = match(0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = match(PCRE2_NO_JIT);  // which has the heap for its stack
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0)
      throw DataError(
          fmt::format("{}: matches must be found in {} steps; got more with '{}' (PCRE2 code {}); write an "
                      "expression that backtracks less",
                      state_->where, kMostSteps, state_->pattern.substr(0, 200), found));
    const std::size_t* ends = pcre2_get_ovector_pointer(data.get());
    const std::size_t begin = ends[0], end = ends[1];
    if (begin > previous) spans.push_back({previous, begin, false});
    if (begin < end) spans.push_back({begin, end, true});
    previous = at = end;
    if (begin < end) continue;
    for (++at; at < text.size() && (text[at] & 0xC0) == 0x80;)
      ++at;  // an empty match cuts; the next is sought behind
  }
  if (previous < text.size()) spans.push_back({previous, text.size(), false});
}

}  // namespace colonnade::data
