// See tokenizer_parts.h.
#include "colonnade/tokenizers/tokenizer_parts.h"

#include <algorithm>

#include "colonnade/base/error.h"

namespace colonnade::tokenizers {
namespace {

/// The raw bytes that a token of a byte-level vocabulary stands for; nullopt: it has other characters.
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

/// The words that are one token, as raw bytes: all tokens, or those that their own merges lead to.
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

PartsTokenizer::PartsTokenizer(TokenizerParts parts) : parts_(std::move(parts)) {
  vocab_size_ = parts_.model->vocabulary().end();
  for (const AddedToken& token : parts_.added) {
    vocab_size_ = std::max(vocab_size_, std::int64_t{token.id} + 1);
    if (token.special) special_texts_.insert(token.content);
    Piece pattern{token.content, true};
    if (token.normalized) normalize_piece(parts_.normalizers, pattern);
    (token.normalized ? normal_added_ : raw_added_).add(token, pattern.text);
    added_texts_[token.id] = pattern.text;
  }
  find_byte_level();
  if (byte_bpe_ == nullptr && normal_added_.empty())
    borders_ = WordBorders::of(parts_.normalizers, parts_.pre_tokenizers, *parts_.model);
}

/// The last step maps bytes, no step before it changes the text, and the model needs nothing but bytes and
/// merges.
void PartsTokenizer::find_byte_level() {
  const auto* model = dynamic_cast<const BpeModel*>(parts_.model.get());
  const std::vector<PreTokenizer>& steps = parts_.pre_tokenizers;
  if (model == nullptr || steps.empty() || !std::holds_alternative<ByteLevelStep>(steps.back())) return;
  for (std::size_t i = 0; i + 1 < steps.size(); ++i)
    if (!std::holds_alternative<SplitStep>(steps[i])) return;
  const BpeOptions& options = model->options();
  if (!options.continuing_prefix.empty() || !options.end_suffix.empty()) return;
  const auto& last = std::get<ByteLevelStep>(steps.back());
  if (last.add_prefix_space && steps.size() > 1) return;
  std::array<std::int32_t, 256> bytes{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string text;
    append_utf8(text, char_of_byte(static_cast<unsigned char>(byte)));
    if ((bytes[byte] = model->vocabulary().id_of(text)) < 0) return;
  }
  byte_bpe_ = std::make_unique<ByteBpe>(bytes, model->merges(), whole_words(*model), !options.ignore_merges);
  prefix_space_ = last.add_prefix_space;
  if (steps.size() == 1 && last.use_regex) cutter_.emplace(SplitRule::kGpt2);
  if (steps.size() != 2 || last.use_regex) return;
  const auto& split = std::get<SplitStep>(steps[0]);
  const auto* rule = std::get_if<SplitRule>(&split.pattern);
  const bool keeps_all =
      split.behavior == Delimiter::kIsolated || (split.behavior == Delimiter::kRemoved && split.invert);
  if (rule != nullptr && *rule < SplitRule::kDeepSeek3 && keeps_all) cutter_.emplace(*rule);
}

void PartsTokenizer::encode_bytes(std::string_view text, std::vector<std::int32_t>& ids) const {
  std::string spaced;
  if (prefix_space_ && !text.empty() && text[0] != ' ') text = spaced.append(" ").append(text);
  if (cutter_) return byte_bpe_->encode(*cutter_, text, ids);
  std::vector<std::string_view> words{text}, next;
  std::vector<Span> spans;
  const auto cut = [&](const SplitStep& step) {
    next.clear();
    for (const std::string_view word : words) {
      split(step, word, spans);
      for (const Span& span : spans) next.push_back(word.substr(span.begin, span.end - span.begin));
    }
    words.swap(next);
  };
  for (const PreTokenizer& step : parts_.pre_tokenizers) {
    if (const auto* own = std::get_if<SplitStep>(&step)) cut(*own);
    if (const auto* last = std::get_if<ByteLevelStep>(&step); last != nullptr && last->use_regex)
      cut({.pattern = SplitRule::kGpt2});
  }
  byte_bpe_->encode(words, ids);
}

void PartsTokenizer::encode_normal(std::string_view text, bool first, GrowthLimit& words,
                                   std::vector<std::int32_t>& ids) const {
  std::size_t at = 0;
  for (const AddedTokens::Part& part : normal_added_.cut(text)) {
    at = static_cast<std::size_t>(part.text.data() - text.data());
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else if (byte_bpe_ != nullptr) {
      encode_bytes(part.text, ids);
    } else {
      pre_tokenize(parts_.pre_tokenizers, part.text, first && at == 0, [&](std::string_view word, bool) {
        words.add(word.size());
        parts_.model->encode(word, ids);
      });
    }
  }
}

void PartsTokenizer::encode_text(std::string_view text, std::vector<std::int32_t>& ids) const {
  if (!is_utf8(text))
    throw DataError(
        fmt::format("tokenizer: text must be UTF-8; got '{}'; convert it", mend_utf8(text.substr(0, 60))));
  GrowthLimit words(text.size(), "text that is cut into words", "normalizer and the pre_tokenizer");
  for (const AddedTokens::Part& part : raw_added_.cut(text)) {
    if (part.id >= 0) {
      ids.push_back(part.id);
      continue;
    }
    const bool first = part.text.data() == text.data();
    if (borders_) {
      encode_words(part.text, first, words, ids);
    } else {
      normalize_and_encode(parts_.normalizers, part.text, first, words, ids);
    }
  }
}

void PartsTokenizer::normalize_and_encode(std::span<const Normalizer> normalizers, std::string_view text,
                                          bool first, GrowthLimit& words,
                                          std::vector<std::int32_t>& ids) const {
  constexpr std::size_t kLong = std::size_t{1} << 20;
  if (normalizers.empty()) return encode_normal(text, first, words, ids);
  Piece piece{std::string(text), first};
  normalize_piece(normalizers, piece);
  // Growing would need twice the memory of the ids; what is not written takes none.
  if (piece.text.size() > kLong) ids.reserve(ids.size() + piece.text.size() + 16);
  encode_normal(piece.text, piece.first, words, ids);
}

/// The first word as the begin of a text, the others without what is put in front of a whole text.
void PartsTokenizer::encode_words(std::string_view text, bool first, GrowthLimit& words,
                                  std::vector<std::int32_t>& ids) const {
  std::span<const Normalizer> within = parts_.normalizers;
  if (!within.empty() && std::holds_alternative<Prepend>(within[0])) within = within.subspan(1);
  const auto lease = caches_.lend([] { return std::make_unique<WordCache>(); });
  std::size_t at = borders_->next(text, 0);
  normalize_and_encode(parts_.normalizers, text.substr(0, at), first, words, ids);
  while (at < text.size()) {
    const std::size_t end = borders_->next(text, at + 1);
    (*lease).append(text.substr(at, end - at), ids,
                    [&](std::string_view word, std::vector<std::int32_t>& own) {
                      normalize_and_encode(within, word, false, words, own);
                    });
    at = end;
  }
}

std::vector<std::int32_t> PartsTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 3);
  encode_text(text, ids);
  return ids;
}

std::int64_t PartsTokenizer::base_vocab_size() const { return parts_.model->vocabulary().end(); }

std::vector<std::int32_t> PartsTokenizer::encode_with_special(std::string_view text) const {
  return parts_.post_processor.single(encode(text), true).ids;
}

std::vector<std::int32_t> PartsTokenizer::encode_document(std::string_view text) const {
  std::vector<std::int32_t> ids = encode(text);
  if (special_in_documents_) parts_.post_processor.put_around(ids);
  return ids;
}

Encoding PartsTokenizer::encode_pair(std::string_view first, std::string_view second,
                                     bool with_special) const {
  return parts_.post_processor.pair(encode(first), encode(second), with_special);
}

std::int32_t PartsTokenizer::id_of(std::string_view piece) const {
  for (const AddedToken& token : parts_.added)
    if (token.content == piece) return token.id;
  return parts_.model->vocabulary().id_of(piece);
}

std::string PartsTokenizer::piece_of(std::int32_t id) const {
  const auto added = added_texts_.find(id);
  return added != added_texts_.end() ? added->second
                                     : std::string(parts_.model->vocabulary().text_of(id).value_or(""));
}

std::string PartsTokenizer::bytes_of(std::int32_t id) const {
  const auto added = added_texts_.find(id);
  if (added != added_texts_.end()) return added->second;
  std::string text(parts_.model->vocabulary().text_of(id).value_or(""));
  for (const Decoder& decoder : parts_.decoders) {
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

std::string PartsTokenizer::text_of(std::span<const std::int32_t> ids, bool keep_special) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocab_size_)
      throw DataError(fmt::format("tokenizer: ids are 0 to {}; got {}; the ids are another tokenizer's",
                                  vocab_size_ - 1, id));
    const auto added = added_texts_.find(id);
    const auto own = added == added_texts_.end() ? parts_.model->vocabulary().text_of(id) : std::nullopt;
    if (added == added_texts_.end() && !own) continue;
    std::string text(own ? *own : std::string_view(added->second));
    if (!keep_special && special_texts_.contains(text)) continue;
    tokens.push_back(std::move(text));
  }
  return tokenizers::decode(parts_.decoders, std::move(tokens));
}

std::string PartsTokenizer::cleaned(std::string text) const {
  return parts_.cleans_texts ? without_word_spaces(std::move(text)) : text;
}

}  // namespace colonnade::tokenizers
