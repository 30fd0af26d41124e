// Unicode for tokenizers: UTF-8, character classes, lower case, normal forms and grapheme clusters.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace colonnade::tokenizers {

/// General categories that split patterns distinguish. kSpace is White_Space, which takes precedence.
enum class Category : std::uint8_t {
  kOther,
  kUpper,     ///< Lu
  kLower,     ///< Ll
  kTitle,     ///< Lt
  kModifier,  ///< Lm
  kLetter,    ///< Lo
  kMark,      ///< Mn, Mc, Me
  kDigit,     ///< Nd
  kNumber,    ///< Nl, No
  kPunctuation,
  kSymbol,
  kSpace,
};

/// Character classes of components of Hugging Face tokenizers, which have different Unicode versions there.
enum CharFlag : std::uint16_t {
  kBertControl = 16,      ///< removed by clean_text of BertNormalizer
  kBertPunctuation = 32,  ///< split off by BertPreTokenizer and Punctuation
  kBertMark = 64,         ///< removed by strip_accents of BertNormalizer
  kCombining = 128,       ///< removed by StripAccents
  kNumeric = 256,         ///< split off by Digits
  kWord = 512,            ///< \w of Whitespace and of single_word tokens
};

/// Category (low four bits) and flags of every character; the same on every machine.
class CharTable {
 public:
  [[nodiscard]] std::uint16_t operator[](char32_t c) const {
    return values_[(std::size_t{blocks_[c >> 8]} << 8) | (c & 255)];
  }
  [[nodiscard]] Category category(char32_t c) const { return static_cast<Category>((*this)[c] & 15); }
  [[nodiscard]] bool is_space(char32_t c) const { return category(c) == Category::kSpace; }
  [[nodiscard]] bool has(char32_t c, CharFlag flag) const { return ((*this)[c] & flag) != 0; }
  /// The table, built at the first call.
  static const CharTable& get();

 private:
  CharTable();
  std::array<std::uint16_t, 0x1100> blocks_{};
  std::vector<std::uint16_t> values_;
};

/// A character and its length in UTF-8 bytes.
struct Decoded {
  char32_t value;
  int size;
};
inline Decoded decode_utf8(const char* at) {
  const auto* p = reinterpret_cast<const unsigned char*>(at);
  if (p[0] < 0x80) return {p[0], 1};
  if (p[0] < 0xE0) return {char32_t(p[0] & 31U) << 6 | (p[1] & 63U), 2};
  if (p[0] < 0xF0) return {char32_t(p[0] & 15U) << 12 | char32_t(p[1] & 63U) << 6 | (p[2] & 63U), 3};
  return {char32_t(p[0] & 7U) << 18 | char32_t(p[1] & 63U) << 12 | char32_t(p[2] & 63U) << 6 | (p[3] & 63U),
          4};
}
/// Calls use(character, bytes) for every character of valid UTF-8.
template <typename Use>
void for_each_char(std::string_view text, Use&& use) {
  for (std::size_t at = 0; at < text.size();) {
    const Decoded c = decode_utf8(text.data() + at);
    use(c.value, text.substr(at, static_cast<std::size_t>(c.size)));
    at += static_cast<std::size_t>(c.size);
  }
}
void append_utf8(std::string& text, char32_t c);
[[nodiscard]] bool is_utf8(std::string_view text);
[[nodiscard]] bool is_ascii(std::string_view text);
[[nodiscard]] std::int64_t count_chars(std::string_view text);
/// The text with U+FFFD in place of every maximal invalid sequence.
[[nodiscard]] std::string replace_invalid_utf8(std::string_view bytes);

/// Lower case of every character by itself, without context.
[[nodiscard]] std::string lower_case(std::string_view text);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
/// The normal form of Unicode 12.0, the version of Hugging Face tokenizers: later characters are unchanged.
[[nodiscard]] std::string normalize(NormalForm form, std::string_view text);

/// Bytes of the first grapheme cluster of a nonempty text. Indic conjuncts (GB9c) are not joined.
[[nodiscard]] std::size_t grapheme_cluster_size(std::string_view text);

/// The tables that tools/make_unicode_table.py writes.
namespace table {
constexpr std::size_t kNumValues = 26, kNumLowerRuns = 185;
struct LowerRun {
  std::int32_t first, last, step, difference;
};
extern const std::string_view kRuns, kLetters;
extern const std::array<std::uint16_t, kNumValues> kValues;
extern const std::array<LowerRun, kNumLowerRuns> kLower;
}  // namespace table

}  // namespace colonnade::tokenizers
