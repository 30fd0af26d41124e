// See sentencepiece_chunks.h. Field numbers are those of sentencepiece_model.proto.
#include "colonnade/tokenizers/sentencepiece_chunks.h"

#include <algorithm>
#include <protozero/pbf_reader.hpp>

#include "colonnade/tokenizers/decoder.h"
#include "colonnade/tokenizers/unicode.h"

namespace colonnade::tokenizers {
namespace {

using protozero::pbf_wire_type;
using protozero::tag_and_type;

constexpr std::int32_t kUserDefined = 4;

std::string_view view(const protozero::data_view& data) { return {data.data(), data.size()}; }

bool is_visible(char c) { return c > ' ' && c < 0x7F; }

/// Whether NFKC leaves a character unchanged and never composes it with the one before: visible ASCII,
/// Cyrillic and Arabic letters, kana, Chinese characters, Hangul syllables.
bool is_plain(char32_t c) {
  return (c > ' ' && c < 0x7F) || (c >= 0x410 && c <= 0x44F) || (c >= 0x621 && c <= 0x63A) ||
         (c >= 0x3041 && c <= 0x3096) || (c >= 0x30A1 && c <= 0x30FA) || (c >= 0x4E00 && c <= 0x9FFF) ||
         (c >= 0xAC00 && c <= 0xD7A3);
}

/// Whether the characters before and after `at` are plain.
bool between_plain(std::string_view text, std::size_t at) {
  if ((text[at] & 0xC0) == 0x80) return false;
  std::size_t before = at - 1;
  while (before > 0 && (text[before] & 0xC0) == 0x80) --before;
  const auto plain = [&](std::size_t offset) {
    const Decoded c = decode_utf8(text.data() + offset);
    return offset + static_cast<std::size_t>(c.size) <= text.size() && is_plain(c.value);
  };
  return plain(before) && plain(at);
}

}  // namespace

ChunkBoundaries::ChunkBoundaries(std::string_view model, bool only_normalized)
    : only_normalized_(only_normalized) {
  protozero::pbf_reader message(model.data(), model.size());
  while (message.next()) {
    switch (message.tag_and_type()) {
      case tag_and_type(1, pbf_wire_type::length_delimited):
        read_piece(view(message.get_view()));
        break;
      case tag_and_type(2, pbf_wire_type::length_delimited):
        for (protozero::pbf_reader trainer = message.get_message(); trainer.next();) {
          if (trainer.tag_and_type() == tag_and_type(24, pbf_wire_type::varint)) {
            whitespace_is_suffix_ = trainer.get_bool();
          } else if (trainer.tag_and_type() == tag_and_type(35, pbf_wire_type::varint)) {
            byte_fallback_ = trainer.get_bool();
          } else {
            trainer.skip();
          }
        }
        break;
      case tag_and_type(3, pbf_wire_type::length_delimited):
        read_normalizer(view(message.get_view()));
        break;
      default:
        message.skip();
    }
  }
}

void ChunkBoundaries::read_piece(std::string_view bytes) {
  std::string_view text;
  std::int32_t type = 1;
  for (protozero::pbf_reader message(bytes.data(), bytes.size()); message.next();) {
    if (message.tag_and_type() == tag_and_type(1, pbf_wire_type::length_delimited)) {
      text = view(message.get_view());
    } else if (message.tag_and_type() == tag_and_type(3, pbf_wire_type::varint)) {
      type = message.get_enum();
    } else {
      message.skip();
    }
  }
  has_mark_ = has_mark_ || text == kMetaspace;
  has_newline_ = has_newline_ || text == "\n";
  pieces_span_newlines_ =
      pieces_span_newlines_ || (text.size() > 1 && text.find('\n') != std::string_view::npos);
  while (text.starts_with(kMetaspace)) text.remove_prefix(kMetaspace.size());
  pieces_span_spaces_ = pieces_span_spaces_ || text.find(kMetaspace) != std::string_view::npos ||
                        text.find(' ') != std::string_view::npos;
  non_ascii_user_defined_ =
      non_ascii_user_defined_ || (type == kUserDefined && !std::ranges::all_of(text, is_visible));
}

void ChunkBoundaries::read_normalizer(std::string_view bytes) {
  std::string_view name, charsmap;
  for (protozero::pbf_reader message(bytes.data(), bytes.size()); message.next();) {
    switch (message.tag_and_type()) {
      case tag_and_type(1, pbf_wire_type::length_delimited):
        name = view(message.get_view());
        break;
      case tag_and_type(2, pbf_wire_type::length_delimited):
        charsmap = view(message.get_view());
        break;
      case tag_and_type(3, pbf_wire_type::varint):
        add_dummy_prefix_ = message.get_bool();
        break;
      case tag_and_type(4, pbf_wire_type::varint):
        remove_extra_whitespaces_ = message.get_bool();
        break;
      case tag_and_type(5, pbf_wire_type::varint):
        known_rules_ = known_rules_ && message.get_bool();
        break;
      default:
        message.skip();
    }
  }
  identity_ = charsmap.empty();
  known_rules_ = known_rules_ && (identity_ || name == "nmt_nfkc" || name == "nfkc");
}

ChunkBoundaries::Boundary ChunkBoundaries::next(std::string_view text, std::size_t from) const {
  const bool known = known_rules_ && !whitespace_is_suffix_;
  const bool inside = known && only_normalized_ && !non_ascii_user_defined_;
  const bool spaces = known && !non_ascii_user_defined_ &&
                      (add_dummy_prefix_ || !remove_extra_whitespaces_) &&
                      (only_normalized_ || (has_mark_ && !pieces_span_spaces_));
  const bool newlines =
      spaces && !only_normalized_ && identity_ && !pieces_span_newlines_ && (has_newline_ || byte_fallback_);
  if (!inside && !spaces) return {text.size(), text.size(), false};
  for (std::size_t at = from; at + 1 < text.size(); ++at) {
    if (inside && between_plain(text, at)) return {at, at, add_dummy_prefix_};
    if (!is_visible(text[at - 1])) continue;
    // The chunk after a space gets one prepended, or keeps its own.
    if (spaces && text[at] == ' ' && is_visible(text[at + 1]))
      return {at, add_dummy_prefix_ ? at + 1 : at, false};
    if (newlines && text[at] == '\n') return {at, at, add_dummy_prefix_};
  }
  return {text.size(), text.size(), false};
}

std::size_t ChunkBoundaries::max_normalized_size(std::string_view text) const {
  constexpr std::size_t kGrowth = 11;  // growth of U+FDFA, the largest of NFKC
  return identity_ || is_ascii(text) ? text.size() * kMetaspace.size() : text.size() * kGrowth;
}

std::size_t ChunkBoundaries::normalized_size(std::string_view text) const {
  constexpr std::size_t kBlock = std::size_t{1} << 16;
  std::size_t size = static_cast<std::size_t>(std::ranges::count(text, ' ')) * (kMetaspace.size() - 1);
  if (identity_) return size + text.size();
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    end = std::min(begin + kBlock, text.size());
    while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
    size += normalize(NormalForm::kNfkc, text.substr(begin, end - begin)).size();
  }
  return size;
}

}  // namespace colonnade::tokenizers
