// See provenance.h.
#include "colonnade/chat_template/provenance.h"

#include <algorithm>
#include <set>

#include "colonnade/chat_template/text_methods.h"

namespace colonnade::chat_template {
namespace {

/// Provenance of the substring of `size` bytes at `begin`.
Provenance substring(const Provenance& provenance, std::size_t begin, std::size_t size) {
  const std::size_t end = begin + size;
  Provenance part;
  for (const SourceRange& source : provenance)
    if (source.begin <= end && source.end >= begin)
      part.push_back(
          {std::max(source.begin, begin) - begin, std::min(source.end, end) - begin, source.message});
  return part;
}

}  // namespace

void append(Provenance& to, const Provenance& from, std::size_t size) {
  for (const SourceRange& source : from)
    to.push_back({source.begin + size, source.end + size, source.message});
}

Provenance spread(const Provenance& provenance, std::size_t size) {
  Provenance all;
  std::set<std::size_t> messages;
  for (const SourceRange& source : provenance)
    if (messages.insert(source.message).second) all.push_back({0, size, source.message});
  return all;
}

Provenance derived_provenance(std::string_view given, const Provenance& provenance, std::string_view result) {
  if (result.size() <= given.size()) {
    const std::size_t blanks = given.size() - stripped(given, nullptr, true, false).size();
    for (const std::size_t begin : {std::size_t{0}, blanks, given.size() - result.size()})
      if (given.substr(begin, result.size()) == result) return substring(provenance, begin, result.size());
  }
  const auto prefix = static_cast<std::size_t>(std::ranges::mismatch(given, result).in1 - given.begin());
  const std::size_t most = std::min(given.size(), result.size()) - prefix;
  std::size_t suffix = 0;
  while (suffix < most && given[given.size() - suffix - 1] == result[result.size() - suffix - 1]) ++suffix;
  const std::size_t change_end = given.size() - suffix;
  const auto moved = [&](std::size_t at, std::size_t in_change) {
    if (at <= prefix) return at;
    return at >= change_end ? at + result.size() - given.size() : in_change;
  };
  Provenance all;
  for (const SourceRange& source : provenance)
    all.push_back({moved(source.begin, prefix), moved(source.end, result.size() - suffix), source.message});
  return all;
}

}  // namespace colonnade::chat_template
