// See normalizer.h.
#include "colonnade/tokenizers/normalizer.h"

#include <array>

#include "colonnade/base/error.h"
#include "colonnade/tokenizers/growth.h"

namespace colonnade::tokenizers {
namespace {

/// Keeps what keep(c) says; a piece that loses its first character does not begin as the text does.
template <typename Keep>
void filter(Piece& piece, Keep&& keep) {
  std::string kept;
  kept.reserve(piece.text.size());
  bool at_start = true;
  for_each_char(piece.text, [&](char32_t c, std::string_view bytes) {
    if (keep(c)) {
      kept += bytes;
    } else if (at_start) {
      piece.first = false;
    }
    at_start = false;
  });
  piece.text = std::move(kept);
}

void strip(Piece& piece, const StripSpace& sides) {
  const CharTable& table = CharTable::get();
  std::size_t begin = std::string::npos, end = 0, at = 0;
  for_each_char(piece.text, [&](char32_t c, std::string_view bytes) {
    if (!table.is_space(c)) {
      begin = std::min(begin, at);
      end = at + bytes.size();
    }
    at += bytes.size();
  });
  begin = sides.left ? std::min(begin, at) : 0;
  end = std::max(sides.right ? end : at, begin);
  if (begin > 0) piece.first = false;
  piece.text = piece.text.substr(begin, end - begin);
}

bool is_nmt_control(char32_t c) {
  return (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
}
bool is_nmt_space(char32_t c) {
  return c == 9 || c == 10 || c == 12 || c == 13 || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
         c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
}

void spaces_for(Piece& piece, bool (*is_space)(char32_t)) {
  std::string text;
  text.reserve(piece.text.size());
  for_each_char(piece.text, [&](char32_t c, std::string_view bytes) { text += is_space(c) ? " " : bytes; });
  piece.text = std::move(text);
}

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

void clean_for_bert(Piece& piece, const BertCleaning& how) {
  const CharTable& table = CharTable::get();
  if (how.clean) {
    filter(piece, [&](char32_t c) { return c != 0 && c != 0xFFFD && !table.has(c, kBertControl); });
    spaces_for(piece, [](char32_t c) { return CharTable::get().is_space(c); });
  }
  if (how.split_chinese) {
    std::string text;
    for_each_char(piece.text, [&](char32_t c, std::string_view bytes) {
      if (is_chinese(c)) {
        text.append(" ").append(bytes).append(" ");
      } else {
        text += bytes;
      }
    });
    piece.text = std::move(text);
  }
  if (how.strip_accents) {
    piece.text = normalize(NormalForm::kNfd, piece.text);
    filter(piece, [&](char32_t c) { return !table.has(c, kBertMark); });
  }
  if (how.lower) piece.text = lower_case(piece.text);
}

struct Apply {
  Piece& piece;
  GrowthLimit limit;

  void check(std::size_t size) const { limit.check(size); }

  void operator()(const UnicodeForm& n) const { piece.text = normalize(n.form, piece.text); }
  void operator()(const LowerCase&) const { piece.text = lower_case(piece.text); }
  void operator()(const StripSpace& n) const { strip(piece, n); }
  void operator()(const StripAccents&) const {
    filter(piece, [](char32_t c) { return !CharTable::get().has(c, kCombining); });
  }
  void operator()(const NmtCleaning&) const {
    filter(piece, [](char32_t c) { return !is_nmt_control(c); });
    spaces_for(piece, is_nmt_space);
  }
  void operator()(const ByteChars&) const { piece.text = bytes_as_chars(piece.text); }
  void operator()(const Prepend& n) const {
    if (!piece.text.empty()) piece.text.insert(0, n.text);
  }
  void operator()(const ReplaceText& n) const {
    // What stands for several characters, or for none, does not stem from the first one.
    if (piece.text.starts_with(n.pattern) && (n.content.empty() || count_chars(n.pattern) > 1))
      piece.first = false;
    std::size_t size = piece.text.size(), at = 0;
    if (n.content.size() > n.pattern.size())
      for (; (at = piece.text.find(n.pattern, at)) != std::string::npos; at += n.pattern.size())
        check(size += n.content.size() - n.pattern.size());
    piece.text = replace_all(piece.text, n.pattern, n.content);
  }
  void operator()(const ReplaceRegex& n) const {
    std::vector<Span> spans;
    n.pattern.find(piece.text, spans);
    std::string text;
    for (const Span& span : spans) {
      const std::string_view part = std::string_view(piece.text).substr(span.begin, span.end - span.begin);
      if (span.matched && span.begin == 0 && !part.empty() && (n.content.empty() || count_chars(part) > 1))
        piece.first = false;
      text += span.matched ? std::string_view(n.content) : part;
      check(text.size());
    }
    piece.text = std::move(text);
  }
  void operator()(const BertCleaning& n) const { clean_for_bert(piece, n); }
  void operator()(const Charsmap& n) const { piece.text = n.apply(piece.text, limit); }
};

struct ByteAlphabet {
  std::array<char32_t, 256> chars{};
  std::array<std::int16_t, 324> bytes{};
  ByteAlphabet() {
    bytes.fill(-1);
    char32_t spare = 256;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool visible = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      chars[byte] = visible ? byte : spare++;
      bytes[chars[byte]] = static_cast<std::int16_t>(byte);
    }
  }
};
const ByteAlphabet& alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

}  // namespace

void normalize_piece(std::span<const Normalizer> normalizers, Piece& piece) {
  const Apply apply{
      piece,
      {piece.text.size(), "normalized text", "Replace, Prepend and Precompiled parts of the normalizer"}};
  for (const Normalizer& normalizer : normalizers) {
    std::visit(apply, normalizer);
    apply.check(piece.text.size());
  }
}

std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content) {
  std::string result;
  result.reserve(text.size());
  std::size_t at = 0;
  for (std::size_t found = 0; (found = text.find(pattern, at)) != std::string_view::npos;
       at = found + pattern.size())
    result.append(text.substr(at, found - at)).append(content);
  return result.append(text.substr(at));
}

char32_t char_of_byte(unsigned char byte) { return alphabet().chars[byte]; }
int byte_of_char(char32_t c) { return c < alphabet().bytes.size() ? alphabet().bytes[c] : -1; }
std::string bytes_as_chars(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char byte : bytes) append_utf8(text, char_of_byte(static_cast<unsigned char>(byte)));
  return text;
}

}  // namespace colonnade::tokenizers
