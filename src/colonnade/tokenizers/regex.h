// Regular expressions in tokenizer files.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace colonnade::tokenizers {

/// A span of a text: a match of a pattern, or the text between two matches.
struct Span {
  std::size_t begin, end;
  bool matched;
};

/// A regular expression in the Oniguruma (Ruby) syntax of tokenizer files, compiled by PCRE2's JIT. \s and \w
/// have Oniguruma's meaning; character classes follow PCRE2's Unicode version. Const functions are
/// thread-safe.
class Regex {
 public:
  /// Throws DataError that starts with `where` for constructs that the two engines may read differently
  /// (regex_syntax.h).
  Regex(const std::string& pattern, const std::string& where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  /// Appends the spans of valid UTF-8 `text`: matches from left to right, and the text between them. A match
  /// that directly follows another one is never empty. Throws DataError for a match that takes too many
  /// steps.
  void find(std::string_view text, std::vector<Span>& spans) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace colonnade::tokenizers
