// The lexer of chat templates.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "colonnade/chat_template/value.h"

namespace colonnade::chat_template {

struct Token {
  enum class Kind {
    kData,
    kBlock,
    kBlockEnd,
    kPrint,
    kPrintEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind = Kind::kEnd;
  std::string text;  ///< for a string: its value, without escapes
  int line = 1;
  [[nodiscard]] bool is(std::string_view op) const { return kind == Kind::kOperator && text == op; }
  [[nodiscard]] bool is_name(std::string_view name) const { return kind == Kind::kName && text == name; }
};

/// The tokens of a template with the Jinja settings of Transformers: trim_blocks and lstrip_blocks on, one
/// trailing newline removed, `-` and `+` at the delimiters. The last token is kEnd. `budget` names the
/// template in errors. Throws DataError.
std::vector<Token> tokenize(std::string_view source, Budget& budget);

}  // namespace colonnade::chat_template
