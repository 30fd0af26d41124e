// A chat template cut into tokens.
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
    kText,
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind = Kind::kEnd;
  std::string text;  ///< a string: what it stands for
  int line = 1;
  [[nodiscard]] bool is(std::string_view op) const { return kind == Kind::kOperator && text == op; }
  [[nodiscard]] bool is_name(std::string_view name) const { return kind == Kind::kName && text == name; }
};

/// Tokens of Jinja as Transformers sets it: trim_blocks and lstrip_blocks on, one newline at the end cut off,
/// `-` and `+` at the marks. The last one is kEnd. `budget` names the template in errors. Throws DataError.
std::vector<Token> tokens_of(std::string_view source, Budget& budget);

}  // namespace colonnade::chat_template
