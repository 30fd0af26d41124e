// See hf_tokenizer.h.
#include "colonnade/tokenizers/hf_tokenizer.h"

#include <algorithm>

#include "colonnade/base/error.h"

namespace colonnade::tokenizers {
namespace {

/// The raw bytes of a token of a byte-level vocabulary; nullopt if it has other characters.
std::optional<std::string> raw_bytes(std::string_view token) {
  std::string bytes;
  bool all = true;
  for_each_char(token, [&](char32_t c, std::string_view) {
    const int byte = byte_of_char(c);
    all = all && byte >= 0;
    bytes.push_back(static_cast<char>(byte));
  });
  return all ? std::optional(bytes) : std::nullopt;
}

/// The words that are one token, as raw bytes: all tokens with ignore_merges, else those that the merges
/// produce.
Vocabulary whole_words(const BpeModel& model) {
  const Vocabulary& vocabulary = model.vocabulary();
  std::vector<std::string> texts;
  std::vector<std::int64_t> ids;
  for (std::int32_t id = 0; id < vocabulary.end(); ++id) {
    const auto text = vocabulary.text_of(id);
    auto raw = text ? raw_bytes(*text) : std::nullopt;
    if (!raw || raw->empty()) continue;
    std::vector<std::int32_t> own;
    if (!model.options().ignore_merges) model.encode(*text, own);
    if (!own.empty() && own != std::vector{id}) continue;
    texts.push_back(std::move(*raw));
    ids.push_back(id);
  }
  std::vector<std::pair<std::string_view, std::int64_t>> tokens;
  for (std::size_t i = 0; i < texts.size(); ++i) tokens.emplace_back(texts[i], ids[i]);
  return {tokens, "vocabulary"};
}

}  // namespace

HfTokenizer::HfTokenizer(TokenizerComponents components) : components_(std::move(components)) {
  vocab_size_ = components_.model->vocabulary().end();
  for (const AddedToken& token : components_.added) {
    vocab_size_ = std::max(vocab_size_, std::int64_t{token.id} + 1);
    if (token.special) special_texts_.insert(token.content);
    NormalizedString pattern{token.content, true};
    if (token.normalized) apply_normalizers(components_.normalizers, pattern);
    (token.normalized ? normalized_added_ : raw_added_).add(token, pattern.text);
    added_texts_[token.id] = pattern.text;
  }
  set_up_byte_level();
  if (byte_bpe_ == nullptr && normalized_added_.empty())
    boundaries_ =
        WordBoundaries::find(components_.normalizers, components_.pre_tokenizers, *components_.model);
}

/// Sets up encoding of raw bytes if ByteLevel is the last pre-tokenizer, the others only split, and the model
/// needs only bytes and merges.
void HfTokenizer::set_up_byte_level() {
  const auto* model = dynamic_cast<const BpeModel*>(components_.model.get());
  const std::vector<PreTokenizer>& steps = components_.pre_tokenizers;
  if (model == nullptr || steps.empty() || !std::holds_alternative<ByteLevelPreTokenizer>(steps.back()))
    return;
  for (std::size_t i = 0; i + 1 < steps.size(); ++i)
    if (!std::holds_alternative<SplitPreTokenizer>(steps[i])) return;
  const BpeOptions& options = model->options();
  if (!options.continuing_prefix.empty() || !options.end_suffix.empty()) return;
  const auto& last = std::get<ByteLevelPreTokenizer>(steps.back());
  if (last.add_prefix_space && steps.size() > 1) return;
  std::array<std::int32_t, 256> bytes{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string text;
    append_utf8(text, char_of_byte(static_cast<unsigned char>(byte)));
    if ((bytes[byte] = model->vocabulary().id_of(text)) < 0) return;
  }
  byte_bpe_ = std::make_unique<ByteBpe>(bytes, model->merges(), whole_words(*model), !options.ignore_merges);
  prefix_space_ = last.add_prefix_space;
  if (steps.size() == 1 && last.use_regex) splitter_.emplace(SplitPattern::kGpt2);
  if (steps.size() != 2 || last.use_regex) return;
  const auto& split = std::get<SplitPreTokenizer>(steps[0]);
  const auto* pattern = std::get_if<SplitPattern>(&split.pattern);
  const bool keeps_all = split.behavior == SplitBehavior::kIsolated ||
                         (split.behavior == SplitBehavior::kRemoved && split.invert);
  if (pattern != nullptr && *pattern < SplitPattern::kDeepSeek3 && keeps_all) splitter_.emplace(*pattern);
}

void HfTokenizer::encode_bytes(std::string_view text, std::vector<std::int32_t>& ids) const {
  std::string spaced;
  if (prefix_space_ && !text.empty() && text[0] != ' ') text = spaced.append(" ").append(text);
  if (splitter_) return byte_bpe_->encode(*splitter_, text, ids);
  std::vector<std::string_view> words{text}, next;
  std::vector<Span> spans;
  const auto split_words = [&](const SplitPreTokenizer& step) {
    next.clear();
    for (const std::string_view word : words) {
      split(step, word, spans);
      for (const Span& span : spans) next.push_back(word.substr(span.begin, span.end - span.begin));
    }
    words.swap(next);
  };
  for (const PreTokenizer& step : components_.pre_tokenizers) {
    if (const auto* own = std::get_if<SplitPreTokenizer>(&step)) split_words(*own);
    if (const auto* last = std::get_if<ByteLevelPreTokenizer>(&step); last != nullptr && last->use_regex)
      split_words({.pattern = SplitPattern::kGpt2});
  }
  byte_bpe_->encode(words, ids);
}

void HfTokenizer::encode_normalized(std::string_view text, bool first, GrowthLimit& words,
                                    std::vector<std::int32_t>& ids) const {
  std::size_t at = 0;
  for (const AddedTokens::Segment& segment : normalized_added_.split(text)) {
    at = static_cast<std::size_t>(segment.text.data() - text.data());
    if (segment.id >= 0) {
      ids.push_back(segment.id);
    } else if (byte_bpe_ != nullptr) {
      encode_bytes(segment.text, ids);
    } else {
      pre_tokenize(components_.pre_tokenizers, segment.text, first && at == 0,
                   [&](std::string_view word, bool) {
                     words.add(word.size());
                     components_.model->encode(word, ids);
                   });
    }
  }
}

void HfTokenizer::encode_text(std::string_view text, std::vector<std::int32_t>& ids) const {
  if (!is_utf8(text))
    throw DataError(fmt::format("tokenizer: text must be UTF-8; got '{}'; convert it",
                                replace_invalid_utf8(text.substr(0, 60))));
  GrowthLimit words(text.size(), "text that is split into words", "normalizer and the pre_tokenizer");
  for (const AddedTokens::Segment& segment : raw_added_.split(text)) {
    if (segment.id >= 0) {
      ids.push_back(segment.id);
      continue;
    }
    const bool first = segment.text.data() == text.data();
    if (boundaries_) {
      encode_words(segment.text, first, words, ids);
    } else {
      normalize_and_encode(components_.normalizers, segment.text, first, words, ids);
    }
  }
}

void HfTokenizer::normalize_and_encode(std::span<const Normalizer> normalizers, std::string_view text,
                                       bool first, GrowthLimit& words, std::vector<std::int32_t>& ids) const {
  constexpr std::size_t kLong = std::size_t{1} << 20;
  if (normalizers.empty()) return encode_normalized(text, first, words, ids);
  NormalizedString normalized{std::string(text), first};
  apply_normalizers(normalizers, normalized);
  // Reallocation would need twice the memory of the ids; reserved pages cost nothing until they are written.
  if (normalized.text.size() > kLong) ids.reserve(ids.size() + normalized.text.size() + 16);
  encode_normalized(normalized.text, normalized.first, words, ids);
}

/// Encodes the first word as the start of a text, the others without the Prepend normalizer.
void HfTokenizer::encode_words(std::string_view text, bool first, GrowthLimit& words,
                               std::vector<std::int32_t>& ids) const {
  std::span<const Normalizer> within = components_.normalizers;
  if (!within.empty() && std::holds_alternative<Prepend>(within[0])) within = within.subspan(1);
  const auto lease = caches_.acquire([] { return std::make_unique<WordCache>(); });
  std::size_t at = boundaries_->next(text, 0);
  normalize_and_encode(components_.normalizers, text.substr(0, at), first, words, ids);
  while (at < text.size()) {
    const std::size_t end = boundaries_->next(text, at + 1);
    (*lease).append(text.substr(at, end - at), ids,
                    [&](std::string_view word, std::vector<std::int32_t>& own) {
                      normalize_and_encode(within, word, false, words, own);
                    });
    at = end;
  }
}

std::vector<std::int32_t> HfTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 3);
  encode_text(text, ids);
  return ids;
}

std::int64_t HfTokenizer::base_vocab_size() const { return components_.model->vocabulary().end(); }

std::vector<std::int32_t> HfTokenizer::encode_with_special(std::string_view text) const {
  return components_.post_processor.single(encode(text), true).ids;
}

std::vector<std::int32_t> HfTokenizer::encode_document(std::string_view text) const {
  std::vector<std::int32_t> ids = encode(text);
  if (special_in_documents_) components_.post_processor.add_special_tokens(ids);
  return ids;
}

Encoding HfTokenizer::encode_pair(std::string_view first, std::string_view second, bool with_special) const {
  return components_.post_processor.pair(encode(first), encode(second), with_special);
}

std::int32_t HfTokenizer::id_of(std::string_view piece) const {
  for (const AddedToken& token : components_.added)
    if (token.content == piece) return token.id;
  return components_.model->vocabulary().id_of(piece);
}

std::string HfTokenizer::piece_of(std::int32_t id) const {
  const auto added = added_texts_.find(id);
  return added != added_texts_.end() ? added->second
                                     : std::string(components_.model->vocabulary().text_of(id).value_or(""));
}

std::string HfTokenizer::bytes_of(std::int32_t id) const {
  const auto added = added_texts_.find(id);
  if (added != added_texts_.end()) return added->second;
  std::string text(components_.model->vocabulary().text_of(id).value_or(""));
  for (const Decoder& decoder : components_.decoders) {
    if (std::holds_alternative<ByteLevelDecoder>(decoder)) return raw_bytes(text).value_or(text);
    if (const auto* pieces = std::get_if<WordPieceDecoder>(&decoder); pieces != nullptr)
      if (text.starts_with(pieces->prefix)) text.erase(0, pieces->prefix.size());
    if (const auto* words = std::get_if<BpeDecoder>(&decoder); words != nullptr)
      if (text.ends_with(words->suffix)) text.resize(text.size() - words->suffix.size());
  }
  if (byte_bpe_ != nullptr) return raw_bytes(text).value_or(text);
  if (const int byte = byte_of_token(text); byte >= 0) return std::string(1, static_cast<char>(byte));
  return replace_all(text, kMetaspace, " ");
}

std::string HfTokenizer::text_of(std::span<const std::int32_t> ids, bool keep_special) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocab_size_)
      throw DataError(
          fmt::format("tokenizer: ids must be 0 to {}; got {}; use the tokenizer that gave the ids",
                      vocab_size_ - 1, id));
    const auto added = added_texts_.find(id);
    const auto own = added == added_texts_.end() ? components_.model->vocabulary().text_of(id) : std::nullopt;
    if (added == added_texts_.end() && !own) continue;
    std::string text(own ? *own : std::string_view(added->second));
    if (!keep_special && special_texts_.contains(text)) continue;
    tokens.push_back(std::move(text));
  }
  return tokenizers::decode(components_.decoders, std::move(tokens));
}

std::string HfTokenizer::cleaned(std::string text) const {
  return components_.clean_up_spaces ? clean_up_tokenization_spaces(std::move(text)) : text;
}

}  // namespace colonnade::tokenizers
