// Provenance: the message of the conversation that each byte of a string comes from.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace colonnade::chat_template {

/// Bytes [begin, end) of a string that come from message number `message`. An empty range marks the position
/// of an empty string.
struct SourceRange {
  std::size_t begin = 0, end = 0, message = 0;
  friend bool operator==(const SourceRange&, const SourceRange&) = default;
};

/// Ranges in ascending order of `begin`.
using Provenance = std::vector<SourceRange>;

/// Appends the provenance of a string that is appended to one of `size` bytes.
void append(Provenance& to, const Provenance& from, std::size_t size);

/// Provenance of a string of `size` bytes, all from every message of another provenance.
Provenance spread(const Provenance& provenance, std::size_t size);

/// Provenance of `result`, which a filter or method made from `given`. Exact for a substring and for a single
/// replacement; between the first and the last change, all messages of that range.
Provenance derived_provenance(std::string_view given, const Provenance& provenance, std::string_view result);

}  // namespace colonnade::chat_template
