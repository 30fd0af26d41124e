// See word_cache.h.
#include "colonnade/tokenizers/word_cache.h"

#include <algorithm>

namespace colonnade::tokenizers {
namespace {

/// Whether a normalizer changes every character, or cluster of combining characters, independently.
struct IsLocal {
  bool operator()(const UnicodeNormalizer&) const { return true; }
  bool operator()(const Lowercase&) const { return true; }
  bool operator()(const StripAccents&) const { return true; }
  bool operator()(const Nmt&) const { return true; }
  bool operator()(const BertNormalizer&) const { return true; }
  bool operator()(const Charsmap&) const { return true; }
  bool operator()(const ReplaceText& n) const { return count_chars(n.pattern) == 1; }
  template <typename Other>
  bool operator()(const Other&) const {
    return false;
  }
};

/// A character within a text, after normalization.
std::string normalized(std::span<const Normalizer> normalizers, char c) {
  NormalizedString string{std::string(1, c), false};
  apply_normalizers(normalizers, string);
  return string.text;
}

bool is_space(std::string_view text) {
  bool all = !text.empty();
  for_each_char(text, [&](char32_t c, std::string_view) { all = all && CharTable::get().is_space(c); });
  return all;
}

/// Whether a step splits at white space and removes it, so that later steps see words one by one.
bool removes_spaces(const PreTokenizer& step) {
  const auto* split = std::get_if<SplitPreTokenizer>(&step);
  if (split == nullptr || split->behavior != SplitBehavior::kRemoved) return false;
  const auto* flags = std::get_if<CharFlagPattern>(&split->pattern);
  return (flags != nullptr && flags->flags == 0 && !split->invert) ||
         (std::holds_alternative<WordPattern>(split->pattern) && split->invert);
}

/// Punctuation that a step such as BERT's second one isolates.
std::array<bool, 256> isolated_punctuation(std::span<const Normalizer> normalizers,
                                           const PreTokenizer& step) {
  std::array<bool, 256> isolated{};
  const auto* split = std::get_if<SplitPreTokenizer>(&step);
  const auto* flags = split != nullptr ? std::get_if<CharFlagPattern>(&split->pattern) : nullptr;
  if (flags == nullptr || flags->flags != kBertPunctuation || split->behavior != SplitBehavior::kIsolated ||
      split->invert)
    return isolated;
  for (unsigned byte = 0x21; byte < 0x7F; ++byte)
    isolated[byte] =
        CharTable::get().has(byte, kBertPunctuation) &&
        normalized(normalizers, static_cast<char>(byte)) == std::string(1, static_cast<char>(byte));
  return isolated;
}

/// The mark that replaces spaces if whole texts are merged; empty if the tokenizer splits or marks words
/// otherwise.
std::string space_mark(std::span<const Normalizer> normalizers, const std::vector<PreTokenizer>& steps) {
  std::string mark;
  if (normalizers.empty() && steps.size() == 1) {
    const auto* metaspace = std::get_if<MetaspacePreTokenizer>(&steps[0]);
    if (metaspace != nullptr && !metaspace->split) append_utf8(mark, metaspace->replacement);
  }
  const auto* replace = normalizers.size() == 1 ? std::get_if<ReplaceText>(normalizers.data()) : nullptr;
  if (replace != nullptr && replace->pattern == " " && steps.empty()) mark = replace->content;
  return mark;
}

/// Whether no merge joins a mark to preceding text other than marks.
bool never_merges_across_mark(const BpeModel& model, const std::string& mark) {
  const Vocabulary& vocabulary = model.vocabulary();
  const BpeOptions& options = model.options();
  if (options.ignore_merges || !options.continuing_prefix.empty() || !options.end_suffix.empty() ||
      mark.empty() || vocabulary.id_of(mark) < 0)
    return false;
  return model.merges().all_of([&](std::int32_t left, std::int32_t right) {
    return !vocabulary.text_of(right)->starts_with(mark) ||
           replace_all(*vocabulary.text_of(left), mark, "").empty();
  });
}

/// First bytes of characters that never combine with an adjacent space, in grapheme clusters, normal forms or
/// otherwise: ASCII except white space and control characters, Latin, Greek and Cyrillic letters, and Chinese
/// characters. A word boundary may be next to them.
constexpr std::array<bool, 256> kNonCombining = [] {
  std::array<bool, 256> set{};
  for (unsigned byte = 0x21; byte < 0x7F; ++byte) set[byte] = true;
  for (const unsigned byte : {0xC3, 0xC4, 0xC5, 0xCE, 0xCF, 0xD0, 0xD1}) set[byte] = true;
  for (unsigned byte = 0xE4; byte < 0xEA; ++byte) set[byte] = true;
  return set;
}();

}  // namespace

std::optional<WordBoundaries> WordBoundaries::find(std::span<const Normalizer> normalizers,
                                                   const std::vector<PreTokenizer>& pre_tokenizers,
                                                   const Model& model) {
  if (!normalizers.empty() && std::holds_alternative<Prepend>(normalizers[0]))
    normalizers = normalizers.subspan(1);
  for (const Normalizer& normalizer : normalizers)
    if (!std::visit(IsLocal{}, normalizer)) return std::nullopt;
  WordBoundaries boundaries;
  const auto* bpe = dynamic_cast<const BpeModel*>(&model);
  const auto* mark =
      pre_tokenizers.empty() ? nullptr : std::get_if<MetaspacePreTokenizer>(&pre_tokenizers.front());
  if (!pre_tokenizers.empty() && removes_spaces(pre_tokenizers.front())) {
    for (const char c : {' ', '\t', '\n'})
      boundaries.spaces_[static_cast<unsigned char>(c)] = is_space(normalized(normalizers, c));
    if (pre_tokenizers.size() > 1)
      boundaries.isolated_ = isolated_punctuation(normalizers, pre_tokenizers[1]);
  } else if (mark != nullptr && mark->split) {
    boundaries.spaces_[' '] = normalized(normalizers, ' ') == " ";
  } else if (bpe != nullptr && never_merges_across_mark(*bpe, space_mark(normalizers, pre_tokenizers))) {
    boundaries.spaces_[' '] = true;
  } else {
    return std::nullopt;
  }
  return boundaries;
}

std::size_t WordBoundaries::next(std::string_view text, std::size_t at) const {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto is_standalone = [&](std::size_t i) {
    return i == text.size() || kNonCombining[byte(i)] || byte(i) == ' ' || byte(i) == '\n';
  };
  bool after_non_combining = at > 0 && kNonCombining[byte(at - 1)];  // of the character before i
  for (std::size_t i = at; i < text.size(); ++i) {
    if (after_non_combining && spaces_[byte(i)] && is_standalone(i + 1)) return i;
    if (after_non_combining &&
        ((isolated_[byte(i)] && is_standalone(i + 1)) || (isolated_[byte(i - 1)] && kNonCombining[byte(i)])))
      return i;
    if ((byte(i) & 0xC0) != 0x80) after_non_combining = kNonCombining[byte(i)];
  }
  return text.size();
}

}  // namespace colonnade::tokenizers
