// See t5_dataset.h.
#include "colonnade/data/t5_dataset.h"

#include <algorithm>

#include "colonnade/base/error.h"

namespace colonnade::data {
namespace {

std::string describe(const SentencePlan& plan, const std::string& identity) {
  return fmt::format(
      "Sentence indices, version 2\n{}\ndocuments {} to {}\nlength {}\nsamples {}\nshort {}\nseed {}\n"
      "sentences at least {}\n",
      identity, plan.documents.begin, plan.documents.end, plan.max_length,
      plan.num_samples ? fmt::format("{}", *plan.num_samples) : "one epoch", plan.short_seq_prob, plan.seed,
      plan.min_sentences);
}

/// A row of known length that is filled from its front.
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

/// Tokens of the decoder: one sentinel a span, the spans, and bos or eos.
std::size_t decoder_tokens(const std::vector<MaskedSpan>& spans) {
  std::size_t count = 1;
  for (const MaskedSpan& span : spans) count += 1 + span.size();
  return count;
}

}  // namespace

T5Dataset::T5Dataset(std::shared_ptr<const TokenSource> source, T5Plan plan, const IndexCache& cache,
                     const std::string& identity)
    : source_(std::move(source)), plan_(std::move(plan)) {
  const auto build = [this] {
    SentenceIndex built = build_sentence_index(*source_, plan_.sentences);
    const Unread& left = built.unread;
    return std::vector<IntArray>{built.sample, IntArray(std::vector<std::int64_t>{
                                                   built.passes, left.documents, left.tokens, left.cut})};
  };
  const std::string what =
      fmt::format("{} (sentences of up to {} tokens)", source_->name(), plan_.sentences.max_length);
  const auto arrays = cache.get(what, describe(plan_.sentences, identity), {"sample_index", "counts"}, build);
  const IntArray& counts = arrays[1];
  if (arrays[0].cols() != 3 || counts.size() != 4)
    throw DataError(
        fmt::format("{}: an index cache must hold rows of 3 and four counts; got {} and {}; delete the cache",
                    source_->name(), arrays[0].cols(), counts.size()));
  index_ = {arrays[0], counts[0], {counts[1], counts[2], counts[3]}};
}

std::vector<SampleOrder> T5Dataset::orders() const {
  const Range& documents = plan_.sentences.documents;
  std::int64_t tokens = 0;
  for (std::int64_t i = source_->document_start(documents.begin); i < source_->document_start(documents.end);
       ++i)
    tokens += source_->length(i);
  return {{.name = name(), .tokens = tokens, .passes = index_.passes, .asked = plan_.sentences.num_samples}};
}

T5Dataset::Text T5Dataset::text(std::int64_t number) const {
  check_number(number);
  const std::int64_t begin = index_.sample[3 * number], end = index_.sample[3 * number + 1];
  Text text{.tokens = {}, .length = index_.sample[3 * number + 2]};
  if (begin < 0 || end <= begin || end > source_->num_sequences() || text.length < 2 ||
      text.length > plan_.sentences.max_length)
    throw DataError(
        fmt::format("{}: the index cache must fit the data; got sample {} outside of it; delete the cache",
                    source_->name(), number));
  for (std::int64_t sentence = begin; sentence < end; ++sentence) {
    const auto filled = static_cast<std::int64_t>(text.tokens.size());
    const std::int64_t count = std::min(source_->length(sentence), text.length - filled);
    text.truncated = text.truncated || count < source_->length(sentence);
    text.tokens.resize(static_cast<std::size_t>(filled + count));
    source_->tokens(sentence, 0, std::span(text.tokens).last(static_cast<std::size_t>(count)));
  }
  return text;
}

DataError T5Dataset::too_small(std::int64_t number, const std::vector<MaskedSpan>& spans) const {
  const std::size_t needed = decoder_tokens(spans);
  if (spans.size() > plan_.ids.sentinels.size())
    return DataError(fmt::format(
        "{}: a sample must have a sentinel for each of its masked spans; got sample {} with {} of {}; raise "
        "--vocab-extra-ids (and --vocab-size by as many), or lower --mask-prob",
        name(), number, plan_.ids.sentinels.size(), spans.size()));
  return DataError(
      fmt::format("{}: the masked spans of a sample must fit the decoder; got {} tokens in sample {} and "
                  "--decoder-seq-length {}; raise it, at least to that, or lower --mask-prob",
                  name(), needed, number, plan_.decoder_length));
}

void T5Dataset::tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const {
  const auto encoder_length = static_cast<std::size_t>(plan_.encoder_length);
  const auto decoder_length = static_cast<std::size_t>(plan_.decoder_length);
  COL_CHECK(out.size() == encoder_length + 2 * decoder_length,
            "T5Dataset: a sample is {} + 2 x {} numbers; got {}", encoder_length, decoder_length, out.size());
  const Text text = this->text(number);
  RandomState random(plan_.sentences.seed + static_cast<std::uint32_t>(number));
  const std::vector<MaskedSpan> spans = mask_spans(text.tokens, text.length, plan_.masking, random);
  if (spans.size() > plan_.ids.sentinels.size() || decoder_tokens(spans) > decoder_length)
    throw too_small(number, spans);

  Row encoder(out.first(encoder_length));
  Row decoder(out.subspan(encoder_length, decoder_length));
  Row labels(out.last(decoder_length));
  decoder.add(plan_.ids.bos);
  const std::span<const std::int64_t> all(text.tokens);
  std::size_t seen = 0;  // tokens of the text that are dealt with
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
