// Regular expressions of tokenizer files.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace colonnade::tokenizers {

/// A part of a text: matched by a pattern, or between two matches.
struct Span {
  std::size_t begin, end;
  bool matched;
};

/// An expression of Oniguruma (Ruby) syntax, which tokenizer files are written in, compiled by PCRE2's JIT.
/// \s and \w mean what Oniguruma means by them. Character classes are those of PCRE2's Unicode version.
/// Const functions are safe to call from many threads.
class Regex {
 public:
  /// Throws DataError, with `where` in front, for what is not known to mean the same in both engines
  /// (regex_syntax.h).
  Regex(const std::string& pattern, const std::string& where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  /// Appends the spans of valid UTF-8 `text`: matches from left to right, of which those may be empty that do
  /// not stand directly behind another, and what lies between them. Throws DataError for a match that takes
  /// too long.
  void find(std::string_view text, std::vector<Span>& spans) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace colonnade::tokenizers
