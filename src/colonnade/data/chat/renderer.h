// A chat template at work.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "colonnade/data/chat/ast.h"

namespace colonnade::data::chat {

/// Bytes [begin, end) of a rendering.
struct Span {
  std::size_t begin = 0, end = 0;
  friend bool operator==(const Span&, const Span&) = default;
};

struct Rendering {
  std::string text;
  std::vector<Span> generation;                        ///< what {% generation %} encloses
  std::vector<std::pair<std::size_t, Span>> messages;  ///< what loops wrote while they were at a message
};

using Variables = std::map<std::string, Value, std::less<>>;

/// Renders `body` with these variables. A loop is at a message while its item is one of the mappings in the
/// list `messages`. Throws DataError that names the line, also where the template calls raise_exception.
Rendering render(const Body& body, Variables variables, Budget& budget);

}  // namespace colonnade::data::chat
