// See t5_dataset.h.
#include "colonnade/data/samples/t5/t5_dataset.h"

#include <algorithm>

#include "colonnade/base/error.h"

namespace colonnade::data {
namespace {

/// A row of fixed length, filled from the front.
class Row {
 public:
  explicit Row(std::span<std::int64_t> out) : out_(out) {}
  void add(std::int64_t token) { out_[filled_++] = token; }
  void add(std::span<const std::int64_t> tokens) {
    std::ranges::copy(tokens, out_.begin() + static_cast<std::ptrdiff_t>(filled_));
    filled_ += tokens.size();
  }
  void fill(std::int64_t pad) { std::ranges::fill(out_.subspan(filled_), pad); }

 private:
  std::span<std::int64_t> out_;
  std::size_t filled_ = 0;
};

/// Number of decoder tokens: the spans, one sentinel each, and bos or eos.
std::size_t decoder_tokens(const std::vector<MaskedSpan>& spans) {
  std::size_t count = 1;
  for (const MaskedSpan& span : spans) count += 1 + span.size();
  return count;
}

}  // namespace

T5Dataset::T5Dataset(std::shared_ptr<const TokenSource> source, T5Plan plan, const IndexCache& cache,
                     CacheKey key)
    : SentenceDataset(std::move(source), plan.sentences, cache, std::move(key)), plan_(std::move(plan)) {}

T5Dataset::Text T5Dataset::text(std::int64_t number) const {
  const Sentences row = sentences(number);
  Text text{.tokens = {}, .length = row.length};
  for (std::int64_t sentence = row.begin; sentence < row.end; ++sentence) {
    const auto filled = static_cast<std::int64_t>(text.tokens.size());
    const std::int64_t count = std::min(source().length(sentence), text.length - filled);
    text.truncated = text.truncated || count < source().length(sentence);
    text.tokens.resize(static_cast<std::size_t>(filled + count));
    source().tokens(sentence, 0, std::span(text.tokens).last(static_cast<std::size_t>(count)));
  }
  check_text(text.tokens, plan_.ids.text_end, number);
  return text;
}

DataError T5Dataset::capacity_error(std::int64_t number, const std::vector<MaskedSpan>& spans) const {
  const std::size_t needed = decoder_tokens(spans);
  if (spans.size() > plan_.ids.sentinels.size())
    return DataError(fmt::format(
        "{}: a sample must have a sentinel for each of its masked spans; got sample {} with {} of {}; raise "
        "--vocab-extra-ids (and --vocab-size by as many), or lower --mask-prob",
        name(), number, plan_.ids.sentinels.size(), spans.size()));
  return DataError(
      fmt::format("{}: the masked spans of a sample must fit the decoder; got {} tokens in sample {} and "
                  "--decoder-seq-length {}; raise it to at least that, or lower --mask-prob",
                  name(), needed, number, plan_.decoder_length));
}

void T5Dataset::tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const {
  const auto encoder_length = static_cast<std::size_t>(plan_.encoder_length);
  const auto decoder_length = static_cast<std::size_t>(plan_.decoder_length);
  COL_CHECK(out.size() == encoder_length + 2 * decoder_length,
            "T5Dataset: a sample must have {} + 2 x {} values; got {}", encoder_length, decoder_length,
            out.size());
  const Text text = this->text(number);
  RandomState random(plan_.sentences.seed + static_cast<std::uint32_t>(number));
  const std::vector<MaskedSpan> spans = mask_spans(text.tokens, text.length, plan_.masking, random).spans;
  if (spans.size() > plan_.ids.sentinels.size() || decoder_tokens(spans) > decoder_length)
    throw capacity_error(number, spans);

  Row encoder(out.first(encoder_length));
  Row decoder(out.subspan(encoder_length, decoder_length));
  Row labels(out.last(decoder_length));
  decoder.add(plan_.ids.bos);
  const std::span<const std::int64_t> all(text.tokens);
  std::size_t seen = 0;  // processed tokens of the text
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const std::int64_t sentinel = plan_.ids.sentinels[i];
    encoder.add(all.subspan(seen, spans[i].front() - seen));
    for (Row* row : {&encoder, &decoder, &labels}) row->add(sentinel);
    for (const std::size_t at : spans[i])
      for (Row* row : {&decoder, &labels}) row->add(all[at]);
    seen = spans[i].back() + 1;
  }
  encoder.add(all.subspan(seen));
  labels.add(plan_.ids.eos);
  encoder.fill(pad);
  decoder.fill(pad);
  labels.fill(-1);
}

}  // namespace colonnade::data
