// See lexer.h. Source of the rules: Jinja's documentation, "Whitespace Control".
#include "colonnade/chat_template/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "colonnade/tokenizers/unicode.h"

namespace colonnade::chat_template {
namespace {

using Kind = Token::Kind;

/// The source with \n as line end, and without one trailing newline.
std::string normalized_newlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    text += source[i] == '\r' ? '\n' : source[i];
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

class Lexer {
 public:
  Lexer(std::string text, Budget& budget) : text_(std::move(text)), budget_(budget) {}

  std::vector<Token> run() {
    budget_.line = 1;
    while (at_ < text_.size()) data();
    add(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void add(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), budget_.line}); }

  [[nodiscard]] bool starts_with_here(std::string_view what) const {
    return std::string_view(text_).substr(at_).starts_with(what);
  }

  void skip(std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i)
      if (text_[at_ + i] == '\n') ++budget_.line;
    at_ += bytes;
    if (bytes > 0) line_starts_ = text_[at_ - 1] == '\n';
  }

  /// Skips white space after a delimiter with a minus.
  void skip_space() {
    while (at_ < text_.size()) {
      const tokenizers::Decoded c = tokenizers::decode_utf8(text_.data() + at_);
      if (!is_space(c.value)) return;
      skip(static_cast<std::size_t>(c.size));
    }
  }

  static void strip_right(std::string& text) {
    while (!text.empty()) {
      std::size_t last = text.size() - 1;
      while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xC0U) == 0x80) --last;
      if (!is_space(tokenizers::decode_utf8(text.data() + last).value)) return;
      text.resize(last);
    }
  }

  /// Reads text up to the next delimiter, and the block that it opens.
  void data() {
    std::size_t delimiter = at_;
    while (delimiter + 1 < text_.size() &&
           !(text_[delimiter] == '{' &&
             std::string_view("{%#").find(text_[delimiter + 1]) != std::string_view::npos))
      ++delimiter;
    if (delimiter + 1 >= text_.size()) {
      add(Kind::kData, text_.substr(at_));
      return skip(text_.size() - at_);
    }
    const bool started = line_starts_;
    const int line = budget_.line;
    std::string text = text_.substr(at_, delimiter - at_);
    skip(delimiter - at_);
    const char what = text_[at_ + 1];
    skip(2);
    const char sign = at_ < text_.size() ? text_[at_] : ' ';
    if (sign == '-') {
      strip_right(text);
    } else if (sign != '+' && what != '{') {
      const std::size_t begin = text.rfind('\n') + 1;
      if ((begin > 0 || started) && is_all_space(std::string_view(text).substr(begin))) text.resize(begin);
    }
    if (!text.empty()) tokens_.push_back({Kind::kData, std::move(text), line});
    if (sign == '-' || sign == '+') skip(1);
    if (what == '#') return comment();
    add(what == '{' ? Kind::kPrint : Kind::kBlock, "");
    expression(what == '{');
  }

  static bool is_all_space(std::string_view text) {
    bool all = true;
    tokenizers::for_each_char(text, [&](char32_t c, std::string_view) { all = all && is_space(c); });
    return all;
  }

  void comment() {
    const std::size_t end = text_.find("#}", at_);
    if (end == std::string::npos)
      budget_.fail("a comment must end with #}", "the end of the template", "close it");
    const char sign = end > at_ ? text_[end - 1] : ' ';
    skip(end + 2 - at_);
    after_delimiter(sign);
  }

  void after_delimiter(char sign) {
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && starts_with_here("\n")) {
      skip(1);
    }
  }

  /// The sign of a closing delimiter here; nullopt if there is none.
  [[nodiscard]] std::optional<char> closes(bool print) const {
    const std::string_view delimiter = print ? "}}" : "%}";
    if (starts_with_here(delimiter)) return ' ';
    const std::string_view rest = std::string_view(text_).substr(at_);
    if (rest.size() > 2 && rest.substr(1).starts_with(delimiter) &&
        (rest[0] == '-' || (rest[0] == '+' && !print)))
      return rest[0];
    return std::nullopt;
  }

  void expression(bool print) {
    std::string open;  // closing brackets still expected
    while (true) {
      if (at_ >= text_.size())
        budget_.fail(fmt::format("a block must close with {}", print ? "}}" : "%}"),
                     "the end of the template", "close it");
      if (const auto sign = open.empty() ? closes(print) : std::nullopt) {
        add(print ? Kind::kPrintEnd : Kind::kBlockEnd, "");
        skip(*sign == ' ' ? 2 : 3);
        if (!print || *sign == '-') after_delimiter(*sign);
        return;
      }
      token(open);
    }
  }

  void token(std::string& open) {
    const char c = text_[at_];
    if (std::isspace(static_cast<unsigned char>(c)) != 0) return skip(1);
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) return number();
    if (is_word(c)) {
      std::size_t end = at_;
      while (end < text_.size() && is_word(text_[end])) ++end;
      add(Kind::kName, text_.substr(at_, end - at_));
      return skip(end - at_);
    }
    if (c == '\'' || c == '"') return string(c);
    operation(open);
  }

  void number() {
    std::size_t end = at_;
    const auto digits = [&] {
      while (end < text_.size() && std::isdigit(static_cast<unsigned char>(text_[end])) != 0) ++end;
    };
    digits();
    bool real = false;
    if (end + 1 < text_.size() && text_[end] == '.' &&
        std::isdigit(static_cast<unsigned char>(text_[end + 1])) != 0) {
      real = true;
      ++end;
      digits();
    }
    if (end < text_.size() && is_word(text_[end]))
      budget_.fail("numbers must be decimal digits", text_.substr(at_, end + 1 - at_), "write it out");
    if (end - at_ > 18)
      budget_.fail("numbers must have at most 18 digits", text_.substr(at_, end - at_),
                   "write a smaller one");
    add(real ? Kind::kFloat : Kind::kInteger, text_.substr(at_, end - at_));
    skip(end - at_);
  }

  void string(char quote) {
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size())
      budget_.fail("a string must end with the quote it begins with", text_.substr(at_, 40), "close it");
    const int line = budget_.line;
    tokens_.push_back(
        {Kind::kString, unescaped(std::string_view(text_).substr(at_ + 1, end - at_ - 1)), line});
    skip(end + 1 - at_);
  }

  /// The value of a string literal with Python's escapes.
  std::string unescaped(std::string_view text) const {
    std::string result;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 >= text.size()) {
        result += text[i];
        continue;
      }
      const char c = text[++i];
      constexpr std::string_view kLetters = "\\'\"abfnrtv", kValues = "\\'\"\a\b\f\n\r\t\v";
      if (const std::size_t named = kLetters.find(c); named != std::string_view::npos) {
        result += kValues[named];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        i += code(text.substr(i + 1), c == 'x' ? 2 : c == 'u' ? 4 : 8, result);
      } else if (c == '\n') {
        continue;
      } else if (c == 'N' || (c >= '0' && c <= '7')) {
        budget_.fail("strings must escape characters by \\x, \\u or \\U", fmt::format("\\{}", c),
                     "write it so");
      } else {
        result += {'\\', c};
      }
    }
    return result;
  }

  std::size_t code(std::string_view text, std::size_t digits, std::string& result) const {
    const std::string hex(text.substr(0, digits));
    const bool good = hex.size() == digits &&
                      std::ranges::all_of(hex, [](unsigned char c) { return std::isxdigit(c) != 0; });
    const unsigned long value = good ? std::stoul(hex, nullptr, 16) : 0x110000;
    if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
      budget_.fail("an escape must be a character's hexadecimal digits", hex, "fix it");
    tokenizers::append_utf8(result, static_cast<char32_t>(value));
    return digits;
  }

  void operation(std::string& open) {
    static constexpr std::array<std::string_view, 26> kAll = {
        "==", "!=", ">=", "<=", "**", "//", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view op : kAll) {
      if (!starts_with_here(op)) continue;
      if (op == "(" || op == "[" || op == "{") open += op == "(" ? ')' : op == "[" ? ']' : '}';
      if (op == ")" || op == "]" || op == "}") {
        if (open.empty() || open.back() != op[0])
          budget_.fail("brackets must close in the order in which they open", fmt::format("'{}'", op),
                       "fix them");
        open.pop_back();
      }
      add(Kind::kOperator, std::string(op));
      return skip(op.size());
    }
    budget_.fail("an expression must consist of known tokens", fmt::format("'{}'", text_[at_]),
                 "fix the template");
  }

  std::string text_;
  Budget& budget_;
  std::size_t at_ = 0;
  bool line_starts_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, Budget& budget) {
  if (!tokenizers::is_utf8(source)) budget.fail("a template must be UTF-8", "other bytes", "fix the file");
  if (source.size() > std::size_t{1} << 20)
    budget.fail("a template must have at most 1 MB", fmt::format("{} bytes", source.size()),
                "give another file");
  return Lexer(normalized_newlines(source), budget).run();
}

}  // namespace colonnade::chat_template
