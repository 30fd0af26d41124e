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
  // Megatron has no such counts: they are an entry of their own.
  const auto count = [&] {
    if (!counted) counted = count_sentence_samples(*source_, plan_);
    const Unread& left = counted->unread;
    return IntArray(std::vector<std::int64_t>{counted->passes, left.documents, left.tokens, left.cut});
  };
  key.kind += "-unread";
  key.check = [&](const std::vector<IntArray>& arrays) {
    if (!std::ranges::equal(arrays[0].bytes(), count().bytes()))
      throw DataError("its counts must be those of the data and the settings; got others");
  };
  const IntArray counts = cache.get("what no sample shows of " + what, key, {"counts"},
                                    [&] { return std::vector<IntArray>{count()}; })[0];
  if (index_.sample.cols() != 3 || counts.size() != 4)
    throw DataError(
        fmt::format("{}: an index cache must hold rows of 3 and four counts; got {} and {}; delete the cache",
                    source_->name(), index_.sample.cols(), counts.size()));
  index_ = {index_.sample, counts[0], {counts[1], counts[2], counts[3]}};
}

std::vector<SampleOrder> SentenceDataset::orders() const {
  std::int64_t tokens = 0;
  for (std::int64_t i = source_->document_start(plan_.documents.begin);
       i < source_->document_start(plan_.documents.end); ++i)
    tokens += source_->length(i);
  return {{.name = name(),
           .tokens = tokens,
           .passes = index_.passes,
           .asked = plan_.num_samples,
           .sequences = {source_->document_start(plan_.documents.begin),
                         source_->document_start(plan_.documents.end)}}};
}

std::vector<SamplePiece> SentenceDataset::pieces(std::int64_t number) const {
  const Sentences row = sentences(number);
  std::vector<SamplePiece> pieces;
  std::int64_t filled = 0;
  for (std::int64_t sentence = row.begin; sentence < row.end; ++sentence) {
    const std::int64_t of = source_->length(sentence);
    const std::int64_t length = std::min(of, row.length - filled);
    if (length > 0) pieces.push_back({.sequence = sentence, .of = of, .length = length});
    filled += length;
  }
  return pieces;
}

void SentenceDataset::read(const SamplePiece& piece, std::span<std::int64_t> out) const {
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
    throw DataError(
        fmt::format("{}: text of numbers must be below {}, the first of the special ids at the end of the "
                    "vocabulary; got {} in sample {}; raise --vocab-size",
                    name(), end, *special, number));
}

std::optional<SentencePlan> plan_of_part(SentencePlan plan, const Opened& opened, const Part& part) {
  plan.documents = range_of(part.fraction, opened.source->num_documents());
  plan.num_samples = part.num_samples;
  if (part.split == Split::kTrain || count_usable_documents(*opened.source, plan) > 0) return plan;
  log::warning("{}: the {} split must have a usable document; got none among {}; {}", opened.source->name(),
               part.name(), plan.documents.size(), part.if_empty);
  return std::nullopt;
}

void say_what_is_lost(const SentenceDataset& samples, const Part& part) {
  const Unread& unread = samples.index().unread;
  const SampleOrder order = samples.orders().front();
  if (unread.documents > 0)
    log::warning(
        "{}: {} of {} documents of the {} split are left out, with {:.1f} % of its tokens: they are empty, or "
        "have {}several sentences, one of them of more than 512 tokens",
        order.name, unread.documents, samples.documents(), part.name(), percent(unread.tokens, order.tokens),
        samples.needs_pairs() ? "one sentence, or " : "");
  if (unread.cut > 0)
    log::warning(
        "{}: {:.1f} % of the tokens of the {} split's samples lie behind their length and are cut off",
        order.name, percent(unread.cut, order.passes * (order.tokens - unread.tokens)), part.name());
}

}  // namespace colonnade::data
