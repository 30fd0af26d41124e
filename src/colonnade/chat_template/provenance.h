// Provenance: which bytes of a string come from which message of the conversation.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace colonnade::chat_template {

/// Bytes [begin, end) of a string that come from message number `message`. An empty range is the place of
/// an empty string.
struct SourceRange {
  std::size_t begin = 0, end = 0, message = 0;
  friend bool operator==(const SourceRange&, const SourceRange&) = default;
};

/// Ascending by `begin`.
using Provenance = std::vector<SourceRange>;

/// Adds the provenance of a string that is appended to one of `size` bytes.
void append(Provenance& to, const Provenance& from, std::size_t size);

/// Provenance of a string of `size` bytes that comes as a whole from all that another one comes from.
Provenance whole(const Provenance& provenance, std::size_t size);

/// Provenance of `result`, which a filter or a method made of `given`: exact for a part of it and for a
/// replacement in one place; between the first and the last change all messages of that range.
Provenance derived_provenance(std::string_view given, const Provenance& provenance, std::string_view result);

}  // namespace colonnade::chat_template
