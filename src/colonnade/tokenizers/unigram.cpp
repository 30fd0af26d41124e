// See unigram.h. Field numbers are those of sentencepiece_model.proto.
#include "colonnade/tokenizers/unigram.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <protozero/pbf_reader.hpp>

namespace colonnade::tokenizers {
namespace {

using protozero::pbf_wire_type;
using protozero::tag_and_type;

enum Type : std::int32_t { kNormal = 1, kUnknown = 2, kUserDefined = 4, kByte = 6 };
constexpr std::int32_t kUnigramModel = 1;
constexpr float kUnknownPenalty = 10, kUserDefinedPenalty = 0.1F;

std::string_view view(const protozero::data_view& data) { return {data.data(), data.size()}; }

/// Bytes of the UTF-8 character at `at`.
std::size_t char_size(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const std::size_t size = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return std::min(size, text.size() - at);
}

/// The byte of a piece such as "<0xE2>"; nullopt for other pieces.
std::optional<unsigned char> byte_of(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece.back() != '>') return std::nullopt;
  unsigned char byte = 0;
  const auto [end, error] = std::from_chars(piece.data() + 3, piece.data() + 5, byte, 16);
  if (error != std::errc() || end != piece.data() + 5) return std::nullopt;
  return byte;
}

struct TrainerSpec {
  std::int32_t model = kUnigramModel;
  bool byte_fallback = false;
};

TrainerSpec trainer_spec_of(protozero::pbf_reader message) {
  TrainerSpec spec;
  while (message.next()) {
    switch (message.tag_and_type()) {
      case tag_and_type(3, pbf_wire_type::varint):
        spec.model = message.get_enum();
        break;
      case tag_and_type(35, pbf_wire_type::varint):
        spec.byte_fallback = message.get_bool();
        break;
      default:
        message.skip();
    }
  }
  return spec;
}

}  // namespace

std::optional<SentencePieceUnigram> SentencePieceUnigram::read(std::string_view model) {
  SentencePieceUnigram unigram;
  TrainerSpec spec;
  std::int32_t id = 0;
  protozero::pbf_reader message(model.data(), model.size());
  while (message.next()) {
    switch (message.tag_and_type()) {
      case tag_and_type(1, pbf_wire_type::length_delimited):
        unigram.add(view(message.get_view()), id++);
        break;
      case tag_and_type(2, pbf_wire_type::length_delimited):
        spec = trainer_spec_of(message.get_message());
        break;
      default:
        message.skip();
    }
  }
  if (spec.model != kUnigramModel) return std::nullopt;
  unigram.byte_fallback_ = spec.byte_fallback;
  unigram.finalize_scores();
  return unigram;
}

/// Sets the scores of user-defined and unknown pieces, and sorts the pieces.
void SentencePieceUnigram::finalize_scores() {
  float worst = std::numeric_limits<float>::max(), best = std::numeric_limits<float>::lowest();
  for (const Piece& piece : pieces_) {
    if (piece.user_defined) continue;
    worst = std::min(worst, piece.score);
    best = std::max(best, piece.score);
  }
  unknown_score_ = worst - kUnknownPenalty;
  for (Piece& piece : pieces_)
    if (piece.user_defined) piece.score = static_cast<float>(piece.text.size()) * best - kUserDefinedPenalty;
  std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) { return a.text < b.text; });
}

void SentencePieceUnigram::add(std::string_view piece_message, std::int32_t id) {
  Piece piece{.id = id};
  std::int32_t type = kNormal;
  protozero::pbf_reader message(piece_message.data(), piece_message.size());
  while (message.next()) {
    switch (message.tag_and_type()) {
      case tag_and_type(1, pbf_wire_type::length_delimited):
        piece.text = view(message.get_view());
        break;
      case tag_and_type(2, pbf_wire_type::fixed32):
        piece.score = message.get_float();
        break;
      case tag_and_type(3, pbf_wire_type::varint):
        type = message.get_enum();
        break;
      default:
        message.skip();
    }
  }
  if (type == kUnknown) unknown_ = id;
  if (const auto byte = byte_of(piece.text); type == kByte && byte) bytes_[*byte] = id;
  piece.user_defined = type == kUserDefined;
  if (type == kNormal || type == kUserDefined) pieces_.push_back(std::move(piece));
}

/// Offers every piece that is a prefix of `text`; returns the bytes of the first character.
std::size_t SentencePieceUnigram::extend(std::string_view text, float score,
                                         ViterbiSegmenter<float>& segmenter) const {
  const std::size_t first_character = char_size(text, 0);
  bool covered = false;
  auto first = pieces_.begin(), last = pieces_.end();
  for (std::size_t at = 0; at < text.size(); ++at) {
    // Narrows the range of matching pieces by one more byte; the shortest is first.
    const auto byte = [at](const Piece& piece) {
      return piece.text.size() > at ? static_cast<unsigned char>(piece.text[at]) : -1;
    };
    const int wanted = static_cast<unsigned char>(text[at]);
    first = std::partition_point(first, last, [&](const Piece& piece) { return byte(piece) < wanted; });
    last = std::partition_point(first, last, [&](const Piece& piece) { return byte(piece) == wanted; });
    if (first == last) break;
    if (first->text.size() != at + 1) continue;
    segmenter.offer(at + 1, first->score + score, first->id);
    covered = covered || at + 1 == first_character;
  }
  if (!covered) segmenter.offer(first_character, unknown_score_ + score, unknown_);
  return first_character;
}

std::vector<std::int32_t> SentencePieceUnigram::encode(std::string_view normalized) const {
  ViterbiSegmenter<float> segmenter;
  std::vector<std::int32_t> ids;
  bool after_unknown = false;
  const auto take = [&](std::size_t begin, std::size_t length, std::int32_t id) {
    const bool unknown = id == unknown_;
    if (unknown && byte_fallback_) {
      for (const char byte : normalized.substr(begin, length))
        ids.push_back(bytes_[static_cast<unsigned char>(byte)]);
    } else if (!unknown || !after_unknown) {
      ids.push_back(id);
    }
    after_unknown = unknown;
  };
  segmenter.run(
      normalized.size(),
      [&](std::size_t at, float score) { return extend(normalized.substr(at), score, segmenter); }, take);
  return ids;
}

std::string SentencePieceUnigram::join(const std::vector<std::string>& pieces) const {
  std::string text;
  for (const std::string& piece : pieces) {
    const auto byte = byte_fallback_ ? byte_of(piece) : std::nullopt;
    if (byte)
      text += static_cast<char>(*byte);
    else
      text += piece;
  }
  return text;
}

}  // namespace colonnade::tokenizers
