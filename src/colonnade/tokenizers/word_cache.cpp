// See word_cache.h.
#include "colonnade/tokenizers/word_cache.h"

#include <algorithm>

namespace colonnade::tokenizers {
namespace {

/// The normalizer takes every character by itself, or clusters of characters that belong together.
struct IsLocal {
  bool operator()(const UnicodeForm&) const { return true; }
  bool operator()(const LowerCase&) const { return true; }
  bool operator()(const StripAccents&) const { return true; }
  bool operator()(const NmtCleaning&) const { return true; }
  bool operator()(const BertCleaning&) const { return true; }
  bool operator()(const Charsmap&) const { return true; }
  bool operator()(const ReplaceText& n) const { return count_chars(n.pattern) == 1; }
  template <typename Other>
  bool operator()(const Other&) const {
    return false;
  }
};

/// What becomes of a character within a text.
std::string normalized(std::span<const Normalizer> normalizers, char c) {
  Piece piece{std::string(1, c), false};
  normalize_piece(normalizers, piece);
  return piece.text;
}

bool is_space(std::string_view text) {
  bool all = !text.empty();
  for_each_char(text, [&](char32_t c, std::string_view) { all = all && CharTable::get().is_space(c); });
  return all;
}

/// Words have no white space, and every further step takes them one by one.
bool removes_spaces(const PreTokenizer& step) {
  const auto* split = std::get_if<SplitStep>(&step);
  if (split == nullptr || split->behavior != Delimiter::kRemoved) return false;
  const auto* flags = std::get_if<FlagPattern>(&split->pattern);
  return (flags != nullptr && flags->flags == 0 && !split->invert) ||
         (std::holds_alternative<WordPattern>(split->pattern) && split->invert);
}

/// Marks of punctuation that the steps behind the first one, as BERT's, make words of their own.
std::array<bool, 256> words_alone(std::span<const Normalizer> normalizers, const PreTokenizer& step) {
  std::array<bool, 256> alone{};
  const auto* split = std::get_if<SplitStep>(&step);
  const auto* flags = split != nullptr ? std::get_if<FlagPattern>(&split->pattern) : nullptr;
  if (flags == nullptr || flags->flags != kBertPunctuation || split->behavior != Delimiter::kIsolated ||
      split->invert)
    return alone;
  for (unsigned byte = 0x21; byte < 0x7F; ++byte)
    alone[byte] = CharTable::get().has(byte, kBertPunctuation) &&
                  normalized(normalizers, static_cast<char>(byte)) == std::string(1, static_cast<char>(byte));
  return alone;
}

/// The mark that stands for spaces in texts that are merged as a whole; empty: they are not.
std::string mark_of_whole(std::span<const Normalizer> normalizers, const std::vector<PreTokenizer>& steps) {
  std::string mark;
  if (normalizers.empty() && steps.size() == 1) {
    const auto* whole = std::get_if<MetaspaceStep>(&steps[0]);
    if (whole != nullptr && !whole->split) append_utf8(mark, whole->replacement);
  }
  const auto* replace = normalizers.size() == 1 ? std::get_if<ReplaceText>(normalizers.data()) : nullptr;
  if (replace != nullptr && replace->pattern == " " && steps.empty()) mark = replace->content;
  return mark;
}

/// No merge joins a mark to what stands in front of it, but for other marks.
bool keeps_marks_apart(const BpeModel& model, const std::string& mark) {
  const Vocabulary& vocabulary = model.vocabulary();
  const BpeOptions& options = model.options();
  if (options.ignore_merges || !options.continuing_prefix.empty() || !options.end_suffix.empty() ||
      mark.empty() || vocabulary.id_of(mark) < 0)
    return false;
  return model.merges().all([&](std::int32_t left, std::int32_t right) {
    return !vocabulary.text_of(right)->starts_with(mark) ||
           replace_all(*vocabulary.text_of(left), mark, "").empty();
  });
}

/// Characters that have a word's border beside them when a space is there: of these first bytes none joins a
/// space, or is joined by one, in Unicode's clusters, normal forms or elsewhere. ASCII but white space and
/// control characters, letters of Latin, Greek and Cyrillic, Chinese characters.
constexpr std::array<bool, 256> kApart = [] {
  std::array<bool, 256> apart{};
  for (unsigned byte = 0x21; byte < 0x7F; ++byte) apart[byte] = true;
  for (const unsigned byte : {0xC3, 0xC4, 0xC5, 0xCE, 0xCF, 0xD0, 0xD1}) apart[byte] = true;
  for (unsigned byte = 0xE4; byte < 0xEA; ++byte) apart[byte] = true;
  return apart;
}();

}  // namespace

std::optional<WordBorders> WordBorders::of(std::span<const Normalizer> normalizers,
                                           const std::vector<PreTokenizer>& pre_tokenizers,
                                           const Model& model) {
  if (!normalizers.empty() && std::holds_alternative<Prepend>(normalizers[0]))
    normalizers = normalizers.subspan(1);
  for (const Normalizer& normalizer : normalizers)
    if (!std::visit(IsLocal{}, normalizer)) return std::nullopt;
  WordBorders borders;
  const auto* bpe = dynamic_cast<const BpeModel*>(&model);
  const auto* mark = pre_tokenizers.empty() ? nullptr : std::get_if<MetaspaceStep>(&pre_tokenizers.front());
  if (!pre_tokenizers.empty() && removes_spaces(pre_tokenizers.front())) {
    for (const char c : {' ', '\t', '\n'})
      borders.spaces_[static_cast<unsigned char>(c)] = is_space(normalized(normalizers, c));
    if (pre_tokenizers.size() > 1) borders.alone_ = words_alone(normalizers, pre_tokenizers[1]);
  } else if (mark != nullptr && mark->split) {
    borders.spaces_[' '] = normalized(normalizers, ' ') == " ";
  } else if (bpe != nullptr && keeps_marks_apart(*bpe, mark_of_whole(normalizers, pre_tokenizers))) {
    borders.spaces_[' '] = true;
  } else {
    return std::nullopt;
  }
  return borders;
}

std::size_t WordBorders::next(std::string_view text, std::size_t at) const {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto joins_nothing = [&](std::size_t i) {
    return i == text.size() || kApart[byte(i)] || byte(i) == ' ' || byte(i) == '\n';
  };
  bool apart = at > 0 && kApart[byte(at - 1)];  // the character in front of i is
  for (std::size_t i = at; i < text.size(); ++i) {
    if (apart && spaces_[byte(i)] && joins_nothing(i + 1)) return i;
    if (apart && ((alone_[byte(i)] && joins_nothing(i + 1)) || (alone_[byte(i - 1)] && kApart[byte(i)])))
      return i;
    if ((byte(i) & 0xC0) != 0x80) apart = kApart[byte(i)];
  }
  return text.size();
}

}  // namespace colonnade::tokenizers
