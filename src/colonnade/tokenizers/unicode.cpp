// See unicode.h.
#include "colonnade/tokenizers/unicode.h"

#include <simdjson.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "colonnade/base/error.h"

namespace colonnade::tokenizers {
namespace {

constexpr std::size_t kCharacters = 0x110000;

std::vector<std::uint16_t> all_values() {
  std::vector<std::uint16_t> values;
  values.reserve(kCharacters);
  std::size_t length = 0;
  for (const char c : table::kRuns) {
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z')) {
      length = length * 36 + static_cast<std::size_t>(c <= '9' ? c - '0' : c - 'a' + 10);
      continue;
    }
    values.insert(values.end(), std::max<std::size_t>(length, 1), table::kValues[table::kLetters.find(c)]);
    length = 0;
  }
  COL_CHECK(values.size() == kCharacters, "unicode table must have {} characters; got {}", kCharacters,
            values.size());
  return values;
}

/// Normal forms that do not change characters newer than Unicode 12.0 and do not reorder marks newer
/// than 9.0: Hugging Face tokenizers has tables of these two versions.
class Normalizers {
 public:
  Normalizers() {
    UErrorCode status = U_ZERO_ERROR;
    known_ = icu::UnicodeSet(u"[[:age=12.0:]&[[:ccc=0:][:age=9.0:]]]", status);
    known_.freeze();
    full_ = {icu::Normalizer2::getNFCInstance(status), icu::Normalizer2::getNFDInstance(status),
             icu::Normalizer2::getNFKCInstance(status), icu::Normalizer2::getNFKDInstance(status)};
    COL_CHECK(U_SUCCESS(status), "ICU: normal forms must load; got {}; reinstall ICU", u_errorName(status));
  }
  [[nodiscard]] std::string apply(NormalForm form, std::string_view text) const {
    const icu::Normalizer2& full = *full_[static_cast<std::size_t>(form)];
    const icu::StringPiece piece(text.data(), static_cast<std::int32_t>(text.size()));
    UErrorCode status = U_ZERO_ERROR;
    // Text that is normal for all characters is also normal for the known ones.
    if (full.isNormalizedUTF8(piece, status)) return std::string(text);
    icu::UnicodeString normal;
    icu::FilteredNormalizer2(full, known_).normalize(icu::UnicodeString::fromUTF8(piece), normal, status);
    COL_CHECK(U_SUCCESS(status), "ICU: text must have a normal form; got {}", u_errorName(status));
    std::string result;
    return normal.toUTF8String(result);
  }

 private:
  icu::UnicodeSet known_;
  std::array<const icu::Normalizer2*, 4> full_{};
};

/// Bytes of a character by its first byte; 0 if no character starts with it.
std::size_t char_size(unsigned first) {
  if (first < 0x80) return 1;
  if (first < 0xC2 || first >= 0xF5) return 0;
  return first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

/// The size of the first character, or of the longest invalid prefix of one (at least 1), and whether it is
/// valid.
std::pair<std::size_t, bool> first_sequence(std::string_view bytes) {
  const unsigned first = static_cast<unsigned char>(bytes[0]);
  const std::size_t size = char_size(first);
  // The second byte has tighter bounds: no overlong forms, no surrogates, nothing above U+10FFFF.
  unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  std::size_t good = 1;
  for (; good < std::min(size, bytes.size()); ++good) {
    const unsigned byte = static_cast<unsigned char>(bytes[good]);
    if (byte < low || byte > high) break;
    low = 0x80;
    high = 0xBF;
  }
  return {good, good == size};
}

/// Whether there is no cluster boundary between two characters (rules GB3 to GB9b of UAX 29).
bool is_joined(int before, int after) {
  if (before == U_GCB_CR) return after == U_GCB_LF;
  const auto breaks = [](int value) {
    return value == U_GCB_CONTROL || value == U_GCB_CR || value == U_GCB_LF;
  };
  if (breaks(before) || breaks(after)) return false;
  if (before == U_GCB_L)
    if (after == U_GCB_L || after == U_GCB_V || after == U_GCB_LV || after == U_GCB_LVT) return true;
  if (before == U_GCB_LV || before == U_GCB_V)
    if (after == U_GCB_V || after == U_GCB_T) return true;
  if ((before == U_GCB_LVT || before == U_GCB_T) && after == U_GCB_T) return true;
  return after == U_GCB_EXTEND || after == U_GCB_ZWJ || after == U_GCB_SPACING_MARK ||
         before == U_GCB_PREPEND;
}

int break_class(char32_t c) {
  return u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_GRAPHEME_CLUSTER_BREAK);
}

}  // namespace

CharTable::CharTable() {
  const std::vector<std::uint16_t> all = all_values();
  std::map<std::vector<std::uint16_t>, std::uint16_t> known;
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(block << 8);
    std::vector<std::uint16_t> values(begin, begin + 256);
    const auto [at, is_new] = known.try_emplace(values, static_cast<std::uint16_t>(known.size()));
    if (is_new) values_.insert(values_.end(), values.begin(), values.end());
    blocks_[block] = at->second;
  }
}

const CharTable& CharTable::get() {
  static const CharTable table;
  return table;
}

void append_utf8(std::string& text, char32_t c) {
  const auto add = [&text](std::uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (c < 0x80) return add(c);
  if (c < 0x800) {
    add(0xC0 | c >> 6);
  } else if (c < 0x10000) {
    add(0xE0 | c >> 12);
    add(0x80 | (c >> 6 & 63));
  } else {
    add(0xF0 | c >> 18);
    add(0x80 | (c >> 12 & 63));
    add(0x80 | (c >> 6 & 63));
  }
  add(0x80 | (c & 63));
}

bool is_utf8(std::string_view text) { return simdjson::validate_utf8(text.data(), text.size()); }

bool is_ascii(std::string_view text) {
  std::uint64_t high = 0;
  std::size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, text.data() + at, 8);
    high |= eight;
  }
  for (; at < text.size(); ++at) high |= static_cast<unsigned char>(text[at]);
  return (high & 0x8080808080808080ULL) == 0;
}

std::int64_t count_chars(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

std::string replace_invalid_utf8(std::string_view bytes) {
  if (is_utf8(bytes)) return std::string(bytes);
  std::string text;
  while (!bytes.empty()) {
    const auto [size, valid] = first_sequence(bytes);
    text += valid ? bytes.substr(0, size) : "\xEF\xBF\xBD";
    bytes.remove_prefix(size);
  }
  return text;
}

std::string lower_case(std::string_view text) {
  std::string lower;
  lower.reserve(text.size());
  for_each_char(text, [&](char32_t c, std::string_view bytes) {
    if (c < 0x80) {
      lower.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
      return;
    }
    if (c == 0x130) {  // the only character with two characters as lower case
      lower += "i\xCC\x87";
      return;
    }
    const auto code = static_cast<std::int32_t>(c);
    const auto run = std::partition_point(table::kLower.begin(), table::kLower.end(),
                                          [code](const table::LowerRun& r) { return r.last < code; });
    if (run == table::kLower.end() || code < run->first || (code - run->first) % run->step != 0) {
      lower += bytes;
    } else {
      append_utf8(lower, static_cast<char32_t>(code + run->difference));
    }
  });
  return lower;
}

std::string normalize(NormalForm form, std::string_view text) {
  if (is_ascii(text)) return std::string(text);
  static const Normalizers normalizers;
  return normalizers.apply(form, text);
}

std::size_t grapheme_cluster_size(std::string_view text) {
  const Decoded first = decode_utf8(text.data());
  auto size = static_cast<std::size_t>(first.size);
  if (size < text.size() && first.value >= 0x20 && first.value < 0x7F && text[size] >= 0) return size;
  int before = break_class(first.value);
  bool pictograph = u_hasBinaryProperty(static_cast<UChar32>(first.value), UCHAR_EXTENDED_PICTOGRAPHIC) != 0;
  int flags = before == U_GCB_REGIONAL_INDICATOR ? 1 : 0;
  while (size < text.size()) {
    const Decoded next = decode_utf8(text.data() + size);
    const int after = break_class(next.value);
    const bool is_pictograph =
        u_hasBinaryProperty(static_cast<UChar32>(next.value), UCHAR_EXTENDED_PICTOGRAPHIC) != 0;
    const bool emoji = pictograph && before == U_GCB_ZWJ && is_pictograph;
    const bool flag = flags % 2 == 1 && after == U_GCB_REGIONAL_INDICATOR;
    if (!is_joined(before, after) && !emoji && !flag) break;
    flags = after == U_GCB_REGIONAL_INDICATOR ? flags + 1 : 0;
    pictograph = is_pictograph || (pictograph && (after == U_GCB_EXTEND || after == U_GCB_ZWJ));
    before = after;
    size += static_cast<std::size_t>(next.size);
  }
  return size;
}

}  // namespace colonnade::tokenizers
