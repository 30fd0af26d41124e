// See unigram.h. Messages are those of sentencepiece_model.proto.
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

/// Bytes of the UTF-8 character that begins at `at`.
std::size_t character(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const std::size_t size = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return std::min(size, text.size() - at);
}

/// The byte that a piece "<0xE2>" stands for.
std::optional<unsigned char> byte_of(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece.back() != '>') return std::nullopt;
  unsigned char byte = 0;
  const auto [end, error] = std::from_chars(piece.data() + 3, piece.data() + 5, byte, 16);
  if (error != std::errc() || end != piece.data() + 5) return std::nullopt;
  return byte;
}

struct Kind {
  std::int32_t model = kUnigramModel;
  bool byte_fallback = false;
};

Kind kind_of(protozero::pbf_reader trainer) {
  Kind kind;
  while (trainer.next()) {
    switch (trainer.tag_and_type()) {
      case tag_and_type(3, pbf_wire_type::varint):
        kind.model = trainer.get_enum();
        break;
      case tag_and_type(35, pbf_wire_type::varint):
        kind.byte_fallback = trainer.get_bool();
        break;
      default:
        trainer.skip();
    }
  }
  return kind;
}

}  // namespace

std::optional<Unigram> Unigram::read(std::string_view model) {
  Unigram unigram;
  Kind kind;
  std::int32_t id = 0;
  protozero::pbf_reader message(model.data(), model.size());
  while (message.next()) {
    switch (message.tag_and_type()) {
      case tag_and_type(1, pbf_wire_type::length_delimited):
        unigram.add(view(message.get_view()), id++);
        break;
      case tag_and_type(2, pbf_wire_type::length_delimited):
        kind = kind_of(message.get_message());
        break;
      default:
        message.skip();
    }
  }
  if (kind.model != kUnigramModel) return std::nullopt;
  unigram.falls_back_ = kind.byte_fallback;
  unigram.finish();
  return unigram;
}

/// Scores that hang on those of all pieces, and the order of the search.
void Unigram::finish() {
  float least = std::numeric_limits<float>::max(), most = std::numeric_limits<float>::lowest();
  for (const Piece& piece : pieces_) {
    if (piece.user_defined) continue;
    least = std::min(least, piece.score);
    most = std::max(most, piece.score);
  }
  unknown_score_ = least - kUnknownPenalty;
  for (Piece& piece : pieces_)
    if (piece.user_defined) piece.score = static_cast<float>(piece.text.size()) * most - kUserDefinedPenalty;
  std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) { return a.text < b.text; });
}

void Unigram::add(std::string_view piece_message, std::int32_t id) {
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

/// Offers every piece that `text` begins with; returns the bytes of its first character.
std::size_t Unigram::extend(std::string_view text, float score, BestCut<float>& cut) const {
  const std::size_t first_character = character(text, 0);
  bool covered = false;
  auto first = pieces_.begin(), last = pieces_.end();
  for (std::size_t at = 0; at < text.size(); ++at) {
    // Of the pieces that agree so far, those that agree in one more byte; the shortest comes first.
    const auto byte = [at](const Piece& piece) {
      return piece.text.size() > at ? static_cast<unsigned char>(piece.text[at]) : -1;
    };
    const int wanted = static_cast<unsigned char>(text[at]);
    first = std::partition_point(first, last, [&](const Piece& piece) { return byte(piece) < wanted; });
    last = std::partition_point(first, last, [&](const Piece& piece) { return byte(piece) == wanted; });
    if (first == last) break;
    if (first->text.size() != at + 1) continue;
    cut.offer(at + 1, first->score + score, first->id);
    covered = covered || at + 1 == first_character;
  }
  if (!covered) cut.offer(first_character, unknown_score_ + score, unknown_);
  return first_character;
}

std::vector<std::int32_t> Unigram::encode(std::string_view normalized) const {
  BestCut<float> cut;
  std::vector<std::int32_t> ids;
  bool after_unknown = false;
  const auto take = [&](std::size_t begin, std::size_t length, std::int32_t id) {
    const bool unknown = id == unknown_;
    if (unknown && falls_back_) {
      for (const char byte : normalized.substr(begin, length))
        ids.push_back(bytes_[static_cast<unsigned char>(byte)]);
    } else if (!unknown || !after_unknown) {
      ids.push_back(id);
    }
    after_unknown = unknown;
  };
  cut.run(
      normalized.size(),
      [&](std::size_t at, float score) { return extend(normalized.substr(at), score, cut); }, take);
  return ids;
}

std::string Unigram::join(const std::vector<std::string>& pieces) const {
  std::string text;
  for (const std::string& piece : pieces) {
    const auto byte = falls_back_ ? byte_of(piece) : std::nullopt;
    if (byte)
      text += static_cast<char>(*byte);
    else
      text += piece;
  }
  return text;
}

}  // namespace colonnade::tokenizers
