// What samples of whole sentences have in common, be they a T5's or a BERT's.
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

/// Samples of one data set, each of some sentences of a document. Memory: the index, mapped from the cache
/// where there is one.
class SentenceDataset : public SampleSource {
 public:
  [[nodiscard]] std::int64_t size() const override { return index_.sample.rows(); }
  [[nodiscard]] std::string name() const override { return source_->name(); }
  [[nodiscard]] std::vector<SampleOrder> orders() const override;
  /// Its sentences as far as the length that it is made for; every token counts as an input, masked or not.
  /// Which tokens of a pair that is too long a BERT leaves out is drawn when it is made.
  [[nodiscard]] std::vector<SamplePiece> pieces(std::int64_t number) const override;
  void read(const SamplePiece& piece, std::span<std::int64_t> out) const override;
  void for_each_text(const TextVisitor& visit) const override {
    visit(*source_,
          {source_->document_start(plan_.documents.begin), source_->document_start(plan_.documents.end)});
  }
  [[nodiscard]] const SentenceIndex& index() const { return index_; }
  /// Of the part of the data set that is used.
  [[nodiscard]] std::int64_t documents() const { return plan_.documents.size(); }
  /// Whether a document of one sentence is left out.
  [[nodiscard]] bool needs_pairs() const { return plan_.min_sentences > 1; }

 protected:
  /// `key`: Megatron's description, and the state of the data; the plan becomes its settings. Throws
  /// DataError as build_sentence_index.
  SentenceDataset(std::shared_ptr<const TokenSource> source, const SentencePlan& plan,
                  const IndexCache& cache, CacheKey key);

  /// A row of the index.
  struct Sentences {
    std::int64_t begin = 0, end = 0;
    std::int64_t length = 0;  ///< tokens that the sample is made for
  };
  /// Throws DataError for a number that does not exist and for an index that does not belong to the data.
  [[nodiscard]] Sentences sentences(std::int64_t number) const;
  [[nodiscard]] const TokenSource& source() const { return *source_; }
  /// Throws DataError for an id of sample `number`'s text that is not below `end`; 0: not checked.
  void check_text(std::span<const std::int64_t> text, std::int64_t end, std::int64_t number) const;

 private:
  std::shared_ptr<const TokenSource> source_;
  SentencePlan plan_;
  SentenceIndex index_;
};

/// `plan` for a part of a data set; nothing, after a warning, where an evaluation split has no usable
/// document.
std::optional<SentencePlan> plan_of_part(SentencePlan plan, const Opened& opened, const Part& part);

/// Says what of the part no sample shows: data made for a GPT lose most of their tokens here.
void say_what_is_lost(const SentenceDataset& samples, const Part& part);

/// The samples of a part, a Dataset of `plan`, whose sentences become those of the part; null as
/// plan_of_part.
template <typename Dataset, typename Plan>
std::shared_ptr<const SampleSource> open_sentences(const Opened& opened, const Part& part, Plan plan) {
  const auto sentences = plan_of_part(plan.sentences, opened, part);
  if (!sentences) return nullptr;
  plan.sentences = *sentences;
  auto samples = std::make_shared<Dataset>(opened.source, std::move(plan), opened.cache, part.key);
  say_what_is_lost(*samples, part);
  return samples;
}

}  // namespace colonnade::data
