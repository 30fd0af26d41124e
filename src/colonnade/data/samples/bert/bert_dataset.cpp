// See bert_dataset.h.
#include "colonnade/data/samples/bert/bert_dataset.h"

#include <algorithm>
#include <optional>

#include "colonnade/base/error.h"

namespace colonnade::data {
namespace {

/// Tokens [begin, end) of the sentences from `first` on.
struct Stretch {
  std::int64_t first = 0;
  std::int64_t begin = 0, end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
};

Stretch stretch_of(const TokenSource& source, std::int64_t first, std::int64_t end) {
  Stretch stretch{.first = first};
  for (std::int64_t sentence = first; sentence < end; ++sentence) stretch.end += source.length(sentence);
  return stretch;
}

void append(const TokenSource& source, const Stretch& stretch, std::vector<std::int64_t>& tokens) {
  std::int64_t begin = stretch.begin, left = stretch.size();
  for (std::int64_t sentence = stretch.first; left > 0; ++sentence) {
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

/// Takes tokens from a drawn end of the longer until both have `length` together.
void shorten(Stretch& a, Stretch& b, std::int64_t length, RandomState& random) {
  while (a.size() + b.size() > length) {
    Stretch& longer = a.size() > b.size() ? a : b;
    if (random.random_sample() < 0.5)
      ++longer.begin;
    else
      --longer.end;
  }
}

/// What a hidden token is replaced by; nothing: it stays.
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
  Stretch a = stretch_of(source(), row.begin, pivot);
  Stretch b = stretch_of(source(), pivot, row.end);
  if (text.swapped) std::swap(a, b);
  text.cut = a.size() + b.size() > row.length;
  shorten(a, b, row.length, random);
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
  COL_CHECK(out.size() == 3 * length + 2, "BertDataset: a sample is 3 x {} + 2 numbers; got {}", length,
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
  const auto hide = [&](std::size_t at) {
    labels[at] = text.tokens[at];
    if (const auto id = replacement(plan_.ids, random)) tokens[at] = *id;
  };
  const Masking masking =
      mask_spans(text.tokens, text.length, plan_.masking, random, hide, plan_.permute ? &lengths : nullptr);
  for (const auto& [to, from] : masking.moves) {
    labels[to] = text.tokens[to];
    tokens[to] = text.tokens[from];
  }
  out[3 * length] = text.swapped ? 1 : 0;
  out[3 * length + 1] = text.cut ? 1 : 0;
}

}  // namespace colonnade::data
