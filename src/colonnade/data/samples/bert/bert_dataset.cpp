// See bert_dataset.h.
#include "colonnade/data/samples/bert/bert_dataset.h"

#include <algorithm>
#include <optional>

#include "colonnade/base/error.h"

namespace colonnade::data {
namespace {

/// Tokens [begin, end) of consecutive sentences from `first` on.
struct TokenSpan {
  std::int64_t first = 0;
  std::int64_t begin = 0, end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
};

TokenSpan span_of(const TokenSource& source, std::int64_t first, std::int64_t end) {
  TokenSpan span{.first = first};
  for (std::int64_t sentence = first; sentence < end; ++sentence) span.end += source.length(sentence);
  return span;
}

void append(const TokenSource& source, const TokenSpan& span, std::vector<std::int64_t>& tokens) {
  std::int64_t begin = span.begin, left = span.size();
  for (std::int64_t sentence = span.first; left > 0; ++sentence) {
    const std::int64_t length = source.length(sentence);
    if (begin < length) {
      const auto count = static_cast<std::size_t>(std::min(left, length - begin));
      tokens.resize(tokens.size() + count);
      source.tokens(sentence, begin, std::span(tokens).last(count));
      left -= static_cast<std::int64_t>(count);
    }
    begin = std::max<std::int64_t>(begin - length, 0);
  }
}

/// Drops tokens from a random end of the longer span until both have `length` tokens in total.
void truncate_pair(TokenSpan& a, TokenSpan& b, std::int64_t length, RandomState& random) {
  while (a.size() + b.size() > length) {
    TokenSpan& longer = a.size() > b.size() ? a : b;
    if (random.random_sample() < 0.5)
      ++longer.begin;
    else
      --longer.end;
  }
}

/// The replacement of a masked token; empty if it is kept.
std::optional<std::int64_t> replacement(const BertIds& ids, RandomState& random) {
  if (random.random_sample() < 0.8) return ids.mask;
  if (random.random_sample() >= 0.5) return random.randint(0, ids.words);
  return std::nullopt;
}

}  // namespace

BertDataset::BertDataset(std::shared_ptr<const TokenSource> source, BertPlan plan, const IndexCache& cache,
                         CacheKey key)
    : SentenceDataset(std::move(source), plan.sentences, cache, std::move(key)), plan_(std::move(plan)) {}

BertDataset::Text BertDataset::text(std::int64_t number) const {
  RandomState random = random_of(number);
  return text(number, random);
}

RandomState BertDataset::random_of(std::int64_t number) const {
  return RandomState(plan_.sentences.seed + static_cast<std::uint32_t>(number));
}

BertDataset::Text BertDataset::text(std::int64_t number, RandomState& random) const {
  const Sentences row = sentences(number);
  Text text{.tokens = {plan_.ids.cls}, .length = row.length};
  std::int64_t pivot = row.end;
  if (plan_.sentence_order) {
    const std::int64_t count = row.end - row.begin;
    pivot = row.begin + (count >= 3 ? random.randint(1, count) : 1);
    text.swapped = random.random_sample() < 0.5;
  }
  TokenSpan a = span_of(source(), row.begin, pivot);
  TokenSpan b = span_of(source(), pivot, row.end);
  if (text.swapped) std::swap(a, b);
  text.truncated = a.size() + b.size() > row.length;
  truncate_pair(a, b, row.length, random);
  append(source(), a, text.tokens);
  text.tokens.push_back(plan_.ids.sep);
  text.first = std::ssize(text.tokens);
  append(source(), b, text.tokens);
  check_text(std::span(text.tokens).subspan(1, static_cast<std::size_t>(a.size())), plan_.ids.text_end,
             number);
  check_text(std::span(text.tokens).subspan(static_cast<std::size_t>(text.first)), plan_.ids.text_end,
             number);
  if (b.size() > 0) text.tokens.push_back(plan_.ids.sep);
  return text;
}

void BertDataset::tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const {
  const auto length = static_cast<std::size_t>(plan_.length);
  COL_CHECK(out.size() == 3 * length + 2, "BertDataset: a sample must have 3 x {} + 2 values; got {}", length,
            out.size());
  RandomState random = random_of(number);
  RandomState lengths = random_of(number);
  const Text text = this->text(number, random);
  std::ranges::fill(out.first(length), pad);
  std::ranges::fill(out.subspan(length, length), 0);
  std::ranges::fill(out.subspan(2 * length, length), -1);
  const std::span<std::int64_t> tokens = out.first(text.tokens.size());
  const std::span<std::int64_t> types = out.subspan(length, text.tokens.size());
  const std::span<std::int64_t> labels = out.subspan(2 * length, text.tokens.size());
  std::ranges::copy(text.tokens, tokens.begin());
  std::ranges::fill(types.subspan(static_cast<std::size_t>(text.first)), 1);
  const auto mask = [&](std::size_t at) {
    labels[at] = text.tokens[at];
    if (const auto id = replacement(plan_.ids, random)) tokens[at] = *id;
  };
  const Masking masking =
      mask_spans(text.tokens, text.length, plan_.masking, random, mask, plan_.permute ? &lengths : nullptr);
  for (const auto& [to, from] : masking.permutations) {
    labels[to] = text.tokens[to];
    tokens[to] = text.tokens[from];
  }
  out[3 * length] = text.swapped ? 1 : 0;
  out[3 * length + 1] = text.truncated ? 1 : 0;
}

}  // namespace colonnade::data
