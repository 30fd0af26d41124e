// See post_processor.h.
#include "colonnade/tokenizers/post_processor.h"

#include <algorithm>

namespace colonnade::tokenizers {
namespace {

using Part = PostProcessor::Part;

Encoding fill(const std::vector<Part>& parts, std::span<const std::int32_t> first,
              std::span<const std::int32_t> second, bool with_special) {
  Encoding encoding;
  for (const Part& part : parts) {
    if (part.kind == Part::Kind::kSpecial && !with_special) continue;
    const std::span<const std::int32_t> ids = part.kind == Part::Kind::kSpecial
                                                  ? std::span<const std::int32_t>(part.ids)
                                              : part.kind == Part::Kind::kFirst ? first
                                                                                : second;
    encoding.ids.insert(encoding.ids.end(), ids.begin(), ids.end());
    encoding.type_ids.insert(encoding.type_ids.end(), ids.size(), part.type_id);
  }
  return encoding;
}

}  // namespace

PostProcessor::PostProcessor()
    : single_{{Part::Kind::kFirst, {}, 0}},
      pair_{{Part::Kind::kFirst, {}, 0}, {Part::Kind::kSecond, {}, 1}} {}

Encoding PostProcessor::single(std::span<const std::int32_t> text, bool with_special) const {
  return fill(single_, text, {}, with_special);
}

Encoding PostProcessor::pair(std::span<const std::int32_t> first, std::span<const std::int32_t> second,
                             bool with_special) const {
  return fill(pair_, first, second, with_special);
}

void PostProcessor::put_around(std::vector<std::int32_t>& ids) const {
  const auto is_text = [](const Part& part) { return part.kind == Part::Kind::kFirst; };
  if (std::ranges::count_if(single_, is_text) != 1) {
    ids = single(ids, true).ids;
    return;
  }
  auto end = ids.begin();
  for (const Part& part : single_) {
    if (is_text(part)) {
      end = ids.end();
    } else if (part.kind == Part::Kind::kSpecial) {
      end = ids.insert(end, part.ids.begin(), part.ids.end()) + static_cast<std::ptrdiff_t>(part.ids.size());
    }
  }
}

std::vector<std::int32_t> PostProcessor::specials_of_single() const {
  return fill(single_, {}, {}, true).ids;
}

}  // namespace colonnade::tokenizers
