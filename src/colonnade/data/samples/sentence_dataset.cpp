// See sentence_dataset.h.
#include "colonnade/data/samples/sentence_dataset.h"

#include <algorithm>
#include <optional>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"

namespace colonnade::data {
namespace {

std::string describe(const SentencePlan& plan) {
  return fmt::format(
      "Sentence indices, version 3\ndocuments {} to {}\nlength {}\nsamples {}\nshort {}\nseed {}\n"
      "sentences at least {}\n",
      plan.documents.begin, plan.documents.end, plan.max_length,
      plan.num_samples ? fmt::format("{}", *plan.num_samples) : "one epoch", plan.short_seq_prob, plan.seed,
      plan.min_sentences);
}

double percent(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

SentenceDataset::SentenceDataset(std::shared_ptr<const TokenSource> source, const SentencePlan& plan,
                                 const IndexCache& cache, CacheKey key)
    : source_(std::move(source)), plan_(plan) {
  const std::string what =
      fmt::format("{} (sentences of up to {} tokens)", source_->name(), plan_.max_length);
  key.settings = describe(plan_);
  std::optional<SentenceIndex> counted;
  key.check = [&](const std::vector<IntArray>& arrays) {
    counted = check_sentence_index(*source_, plan_, arrays[0]);
  };
  index_.sample = cache.get(what, key, {"sample_index"}, [&] {
    counted = build_sentence_index(*source_, plan_);
    return std::vector<IntArray>{counted->sample};
  })[0];
  // Megatron does not store these counts: they have a cache entry of their own.
  const auto count = [&] {
    if (!counted) counted = count_sentence_samples(*source_, plan_);
    const UnusedText& unused = counted->unused;
    return IntArray(
        std::vector<std::int64_t>{counted->epochs, unused.documents, unused.tokens, unused.truncated_tokens});
  };
  key.kind += "-unread";
  key.check = [&](const std::vector<IntArray>& arrays) {
    if (!std::ranges::equal(arrays[0].bytes(), count().bytes()))
      throw DataError("its counts must match the data and the settings; got others");
  };
  const IntArray counts =
      cache.get("unused text of " + what, key, {"counts"}, [&] { return std::vector<IntArray>{count()}; })[0];
  if (index_.sample.cols() != 3 || counts.size() != 4)
    throw DataError(
        fmt::format("{}: an index cache must hold rows of 3 and four counts; got {} and {}; delete the cache",
                    source_->name(), index_.sample.cols(), counts.size()));
  index_ = {.sample = index_.sample,
            .epochs = counts[0],
            .unused = {.documents = counts[1], .tokens = counts[2], .truncated_tokens = counts[3]}};
}

std::vector<SampleOrder> SentenceDataset::orders() const {
  std::int64_t tokens = 0;
  for (std::int64_t i = source_->document_start(plan_.documents.begin);
       i < source_->document_start(plan_.documents.end); ++i)
    tokens += source_->length(i);
  return {{.name = name(),
           .tokens = tokens,
           .passes = index_.epochs,
           .asked = plan_.num_samples,
           .sequences = {source_->document_start(plan_.documents.begin),
                         source_->document_start(plan_.documents.end)}}};
}

std::vector<SampleSpan> SentenceDataset::spans(std::int64_t number) const {
  const Sentences row = sentences(number);
  std::vector<SampleSpan> pieces;
  std::int64_t filled = 0;
  for (std::int64_t sentence = row.begin; sentence < row.end; ++sentence) {
    const std::int64_t all = source_->length(sentence);
    const std::int64_t length = std::min(all, row.length - filled);
    if (length > 0) pieces.push_back({.sequence = sentence, .sequence_length = all, .length = length});
    filled += length;
  }
  return pieces;
}

void SentenceDataset::read(const SampleSpan& piece, std::span<std::int64_t> out) const {
  source_->tokens(piece.sequence, piece.offset, out);
}

SentenceDataset::Sentences SentenceDataset::sentences(std::int64_t number) const {
  check_number(number);
  const Sentences row{index_.sample[3 * number], index_.sample[3 * number + 1],
                      index_.sample[3 * number + 2]};
  if (row.begin < 0 || row.end - row.begin < plan_.min_sentences || row.end == row.begin ||
      row.end > source_->num_sequences() || row.length < 2 || row.length > plan_.max_length)
    throw DataError(
        fmt::format("{}: the index cache must fit the data; got sample {} outside of it; delete the cache",
                    source_->name(), number));
  return row;
}

void SentenceDataset::check_text(std::span<const std::int64_t> text, std::int64_t end,
                                 std::int64_t number) const {
  if (end == 0) return;
  const auto special = std::ranges::find_if(text, [end](std::int64_t id) { return id >= end; });
  if (special != text.end())
    throw DataError(fmt::format(
        "{}: token ids of text must be below {}, the first special id at the end of the vocabulary; "
        "got {} in sample {}; raise --vocab-size",
        name(), end, *special, number));
}

std::optional<SentencePlan> plan_for_split(SentencePlan plan, const OpenedDataset& opened,
                                           const SplitRequest& request) {
  plan.documents = range_of(request.fraction, opened.source->num_documents());
  plan.num_samples = request.num_samples;
  if (request.split == Split::kTrain || count_usable_documents(*opened.source, plan) > 0) return plan;
  log::warning("{}: the {} split must have a usable document; got none among {}; {}", opened.source->name(),
               request.name(), plan.documents.size(), request.if_empty);
  return std::nullopt;
}

void warn_of_unused_text(const SentenceDataset& samples, const SplitRequest& request) {
  const UnusedText& unused = samples.index().unused;
  const SampleOrder order = samples.orders().front();
  if (unused.documents > 0)
    log::warning(
        "{}: {} of {} documents of the {} split are left out, with {:.1f} % of its tokens: they are empty, or "
        "have {}several sentences, one of them of more than 512 tokens",
        order.name, unused.documents, samples.documents(), request.name(),
        percent(unused.tokens, order.tokens), samples.needs_pairs() ? "one sentence, or " : "");
  if (unused.truncated_tokens > 0)
    log::warning(
        "{}: {:.1f} % of the tokens of the {} split's samples exceed the sample length and are truncated",
        order.name, percent(unused.truncated_tokens, order.passes * (order.tokens - unused.tokens)),
        request.name());
}

}  // namespace colonnade::data
