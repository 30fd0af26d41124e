// The renderer of chat templates.
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

/// An iteration of a loop and its output.
struct Iteration {
  std::optional<std::size_t> message;  ///< number of the message that is its item; nullopt for another item
  Span span;
  std::size_t first_source = 0, end_source = 0;  ///< [first, end) of Rendering::sources
};

struct Rendering {
  std::string text;
  std::vector<Span> generation;       ///< output of {% generation %} blocks
  std::vector<Iteration> iterations;  ///< of loops that write directly to the text; outer before inner
  Provenance sources;                 ///< bytes from messages, except from `role` and `name`
};

using Variables = std::map<std::string, Value, std::less<>>;

/// Renders `body` with these variables. Throws DataError that names the line for an error or a
/// raise_exception of the template.
Rendering render(const Body& body, Variables variables, Budget& budget);

}  // namespace colonnade::chat_template
