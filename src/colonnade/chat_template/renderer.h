// A chat template at work.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "colonnade/chat_template/ast.h"

namespace colonnade::chat_template {

/// Bytes [begin, end) of a rendering.
struct Span {
  std::size_t begin = 0, end = 0;
  friend bool operator==(const Span&, const Span&) = default;
};

/// One pass of a loop through its body, and what it wrote.
struct Iteration {
  std::optional<std::size_t> message;  ///< the message that its item is
  Span span;
  std::size_t first_source = 0, end_source = 0;  ///< [first, end) of Rendering::sources
};

struct Rendering {
  std::string text;
  std::vector<Span> generation;       ///< what {% generation %} encloses
  std::vector<Iteration> iterations;  ///< of loops that write to the text itself; outer before inner ones
  Provenance sources;                 ///< bytes out of messages, other than of `role` and `name`
};

using Variables = std::map<std::string, Value, std::less<>>;

/// Renders `body` with these variables. Throws DataError that names the line, also where the template calls
/// raise_exception.
Rendering render(const Body& body, Variables variables, Budget& budget);

}  // namespace colonnade::chat_template
