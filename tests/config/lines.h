// Helpers that parse command lines given as one string.
#pragma once

#include <string>
#include <vector>

#include "colonnade/config/parse.h"

namespace colonnade::config {

/// Splits as a shell: blanks, single and double quotes, backslash at the end of a line.
inline std::vector<std::string> shell(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  char quote = 0;
  bool open = false;
  for (const char c : text) {
    if (quote != 0 ? c == quote : c == '"' || c == '\'') {
      quote = quote != 0 ? 0 : c;
      open = true;
    } else if (quote == 0 && (c == ' ' || c == '\n' || c == '\\')) {
      if (open) words.push_back(word);
      word.clear();
      open = false;
    } else {
      word += c;
      open = true;
    }
  }
  if (open) words.push_back(word);
  return words;
}

inline Run run_of(const std::string& line) { return parse(shell(line)); }
inline std::vector<std::string> faults_of(const std::string& line) { return parse_all(shell(line)).faults; }

}  // namespace colonnade::config
