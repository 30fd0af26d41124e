// See provenance.h.
#include "colonnade/chat_template/provenance.h"

#include <algorithm>
#include <set>

#include "colonnade/chat_template/text_methods.h"

namespace colonnade::chat_template {
namespace {

/// Provenance of `size` bytes from `begin` on.
Provenance part_of(const Provenance& provenance, std::size_t begin, std::size_t size) {
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

Provenance whole(const Provenance& provenance, std::size_t size) {
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
      if (given.substr(begin, result.size()) == result) return part_of(provenance, begin, result.size());
  }
  const auto alike = static_cast<std::size_t>(std::ranges::mismatch(given, result).in1 - given.begin());
  const std::size_t most = std::min(given.size(), result.size()) - alike;
  std::size_t behind = 0;
  while (behind < most && given[given.size() - behind - 1] == result[result.size() - behind - 1]) ++behind;
  const std::size_t change_end = given.size() - behind;
  const auto moved = [&](std::size_t at, std::size_t in_change) {
    if (at <= alike) return at;
    return at >= change_end ? at + result.size() - given.size() : in_change;
  };
  Provenance all;
  for (const SourceRange& source : provenance)
    all.push_back({moved(source.begin, alike), moved(source.end, result.size() - behind), source.message});
  return all;
}

}  // namespace colonnade::chat_template
