// Base of the samples of whole sentences: T5 and BERT.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/data/index_cache.h"
#include "colonnade/data/indexed/token_source.h"
#include "colonnade/data/open_data.h"
#include "colonnade/data/sample_source.h"
#include "colonnade/data/samples/sentence_index.h"

namespace colonnade::data {

/// Samples of one data set, each built from consecutive sentences of a document. Memory: the index, mapped
/// from the cache if there is one.
class SentenceDataset : public SampleSource {
 public:
  [[nodiscard]] std::int64_t size() const override { return index_.sample.rows(); }
  [[nodiscard]] std::string name() const override { return source_->name(); }
  [[nodiscard]] std::vector<SampleOrder> orders() const override;
  /// The sentences up to the sample's target length; every token counts as an input, masked or not. The
  /// tokens that BERT drops from an overlong pair are drawn when the sample is built.
  [[nodiscard]] std::vector<SampleSpan> spans(std::int64_t number) const override;
  void read(const SampleSpan& piece, std::span<std::int64_t> out) const override;
  void for_each_source(const SourceVisitor& visit) const override {
    visit(*source_,
          {source_->document_start(plan_.documents.begin), source_->document_start(plan_.documents.end)});
  }
  [[nodiscard]] const SentenceIndex& index() const { return index_; }
  /// Number of documents in the split.
  [[nodiscard]] std::int64_t documents() const { return plan_.documents.size(); }
  /// Whether documents of a single sentence are left out.
  [[nodiscard]] bool needs_pairs() const { return plan_.min_sentences > 1; }

 protected:
  /// `key` holds Megatron's description and the fingerprint of the data; the plan becomes its settings.
  /// Throws DataError like build_sentence_index.
  SentenceDataset(std::shared_ptr<const TokenSource> source, const SentencePlan& plan,
                  const IndexCache& cache, CacheKey key);

  /// A row of the index.
  struct Sentences {
    std::int64_t begin = 0, end = 0;
    std::int64_t length = 0;  ///< target length in tokens
  };
  /// Throws DataError for a number out of range and for an index that does not match the data.
  [[nodiscard]] Sentences sentences(std::int64_t number) const;
  [[nodiscard]] const TokenSource& source() const { return *source_; }
  /// Throws DataError if the text of sample `number` has an id >= `end`; an `end` of 0 disables the check.
  void check_text(std::span<const std::int64_t> text, std::int64_t end, std::int64_t number) const;

 private:
  std::shared_ptr<const TokenSource> source_;
  SentencePlan plan_;
  SentenceIndex index_;
};

/// The plan for a split of a data set; empty, after a warning, for an evaluation split without usable
/// documents.
std::optional<SentencePlan> plan_for_split(SentencePlan plan, const OpenedDataset& opened,
                                           const SplitRequest& request);

/// Warns of text that no sample uses: data preprocessed for GPT lose most of their tokens here.
void warn_of_unused_text(const SentenceDataset& samples, const SplitRequest& request);

/// Opens the samples of a split as a Dataset with `plan`, whose sentences become those of the split; null
/// like plan_for_split.
template <typename Dataset, typename Plan>
std::shared_ptr<const SampleSource> open_sentences(const OpenedDataset& opened, const SplitRequest& request,
                                                   Plan plan) {
  const auto sentences = plan_for_split(plan.sentences, opened, request);
  if (!sentences) return nullptr;
  plan.sentences = *sentences;
  auto samples = std::make_shared<Dataset>(opened.source, std::move(plan), opened.cache, request.key);
  warn_of_unused_text(*samples, request);
  return samples;
}

}  // namespace colonnade::data
