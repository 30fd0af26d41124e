// See post_processor.h.
#include "colonnade/tokenizers/post_processor.h"

#include <algorithm>

namespace colonnade::tokenizers {
namespace {

using Piece = PostProcessor::Piece;

Encoding apply_template(const std::vector<Piece>& pieces, std::span<const std::int32_t> first,
                        std::span<const std::int32_t> second, bool with_special) {
  Encoding encoding;
  for (const Piece& piece : pieces) {
    if (piece.kind == Piece::Kind::kSpecialToken && !with_special) continue;
    const std::span<const std::int32_t> ids = piece.kind == Piece::Kind::kSpecialToken
                                                  ? std::span<const std::int32_t>(piece.ids)
                                              : piece.kind == Piece::Kind::kSequenceA ? first
                                                                                      : second;
    encoding.ids.insert(encoding.ids.end(), ids.begin(), ids.end());
    encoding.type_ids.insert(encoding.type_ids.end(), ids.size(), piece.type_id);
  }
  return encoding;
}

}  // namespace

PostProcessor::PostProcessor()
    : single_{{Piece::Kind::kSequenceA, {}, 0}},
      pair_{{Piece::Kind::kSequenceA, {}, 0}, {Piece::Kind::kSequenceB, {}, 1}} {}

Encoding PostProcessor::single(std::span<const std::int32_t> text, bool with_special) const {
  return apply_template(single_, text, {}, with_special);
}

Encoding PostProcessor::pair(std::span<const std::int32_t> first, std::span<const std::int32_t> second,
                             bool with_special) const {
  return apply_template(pair_, first, second, with_special);
}

void PostProcessor::add_special_tokens(std::vector<std::int32_t>& ids) const {
  const auto is_text = [](const Piece& piece) { return piece.kind == Piece::Kind::kSequenceA; };
  if (std::ranges::count_if(single_, is_text) != 1) {
    ids = single(ids, true).ids;
    return;
  }
  auto end = ids.begin();
  for (const Piece& piece : single_) {
    if (is_text(piece)) {
      end = ids.end();
    } else if (piece.kind == Piece::Kind::kSpecialToken) {
      end =
          ids.insert(end, piece.ids.begin(), piece.ids.end()) + static_cast<std::ptrdiff_t>(piece.ids.size());
    }
  }
}

std::vector<std::int32_t> PostProcessor::special_ids_of_single() const {
  return apply_template(single_, {}, {}, true).ids;
}

}  // namespace colonnade::tokenizers
