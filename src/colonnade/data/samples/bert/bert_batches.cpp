// See bert_batches.h.
#include "colonnade/data/samples/bert/bert_batches.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "colonnade/base/error.h"
#include "colonnade/data/mock_source.h"
#include "colonnade/data/open_data.h"
#include "colonnade/data/samples/bert/bert_dataset.h"

namespace colonnade::data {
namespace {

constexpr std::int64_t kSpecialTokens = 3;  ///< cls and two sep
/// Padding: differs from every id, even of damaged data.
constexpr std::int64_t kPadding = std::numeric_limits<std::int64_t>::min();

BertPlan plan_of(const config::Data& data, const config::Training& training, const BertIds& ids,
                 bool sentence_order) {
  constexpr std::int64_t kMost = 0x7fffffff;
  if (training.seq_length < kSpecialTokens + 2 || training.seq_length > kMost)
    throw ConfigError(
        fmt::format("--seq-length must be {} to {} for BERT, including three special tokens; got {}; set it",
                    kSpecialTokens + 2, kMost, training.seq_length));
  return {.length = training.seq_length,
          .sentence_order = sentence_order,
          .sentences = {.max_length = training.seq_length - kSpecialTokens,
                        .short_seq_prob = data.short_seq_prob,
                        .seed = numpy_seed(training.seed),
                        .min_sentences = sentence_order ? 2 : 1},
          .masking = {.probability = data.mask_prob,
                      .max_words = 3,
                      .cls = ids.cls,
                      .sep = ids.sep,
                      .continues_word = ids.continues_word},
          .ids = ids};
}

/// Mock sentences with the ids of the longest gap between the special ids.
std::shared_ptr<const TokenSource> mock_sentences(const BertIds& ids) {
  std::vector<std::int64_t> special{-1, ids.cls, ids.sep, ids.mask, ids.pad, ids.words};
  std::ranges::sort(special);
  std::int64_t first = 0, count = 0;
  for (std::size_t i = 1; i < special.size(); ++i) {
    const std::int64_t between = special[i] - special[i - 1] - 1;
    if (between > count) first = special[i - 1] + 1;
    count = std::max(count, between);
  }
  return std::make_shared<MockSentences>(first, count);
}

DatasetClass class_of(const config::Data& data, const config::Training& training, const BertIds& ids,
                      bool sentence_order) {
  return {.name = "BERTMaskedWordPieceDataset",
          .seed = training.seed,
          .seq_length = training.seq_length,
          .tokenizer = tokenizer_identity(data, ids.vocab_size),
          .extra_keys = {{"masking_probability", json_of(data.mask_prob)},
                         {"short_sequence_probability", json_of(data.short_seq_prob)},
                         {"masking_max_ngram", "3"},
                         {"masking_do_full_word", "true"},
                         {"masking_do_permutation", "false"},
                         {"masking_use_longer_ngrams", "false"},
                         {"masking_use_geometric_distribution", "false"},
                         {"classification_head", json_of(sentence_order)}}};
}

}  // namespace

BertBatches::BertBatches(std::shared_ptr<const SampleSource> samples, const Plan& plan)
    : Batches(std::move(samples), plan.cyclic_step), plan_(plan) {}

HostBatch BertBatches::make(std::span<const std::int64_t> chosen) const {
  const auto length = static_cast<std::size_t>(plan_.length);
  HostBatch batch;
  batch.seq = plan_.length;
  std::vector<std::int64_t> numbers(3 * length + 2);
  for (const std::int64_t sample : chosen) {
    samples().tokens(sample, kPadding, numbers);
    const std::span<std::int64_t> all(numbers);
    const auto text = all.first(length), types = all.subspan(length, length),
               labels = all.subspan(2 * length, length);
    for (const std::int64_t id : text) batch.padding.push_back(id == kPadding ? 1 : 0);
    for (const std::int64_t label : labels) batch.loss_mask.push_back(label == -1 ? 0.0F : 1.0F);
    for (std::int64_t& id : text)
      if (id == kPadding || id == plan_.pad) id = 0;
    for (std::int64_t& label : labels)
      if (label == -1 || label == plan_.pad) label = 0;
    check_vocabulary(text, plan_.text.vocab_size, sample);
    check_vocabulary(labels, plan_.text.vocab_size, sample);
    batch.tokens.insert(batch.tokens.end(), text.begin(), text.end());
    batch.token_types.insert(batch.token_types.end(), types.begin(), types.end());
    batch.labels.insert(batch.labels.end(), labels.begin(), labels.end());
    if (plan_.sentence_order) batch.swapped.push_back(numbers[3 * length]);
  }
  return batch;
}

Splits open_bert_batches(const config::Data& data, const config::Training& training, const BertIds& ids,
                         bool sentence_order, const DataRequest& wanted) {
  const BertPlan plan = plan_of(data, training, ids, sentence_order);
  const auto open = [&plan](const OpenedDataset& opened, const SplitRequest& request) {
    return open_sentences<BertDataset>(opened, request, plan);
  };
  const auto mock = [&ids] { return mock_sentences(ids); };
  const Sources sources = open_sources(
      data, sample_counts(training, wanted),
      {.open = open, .mock = mock, .dataset_class = class_of(data, training, ids, sentence_order)});
  return to_batches(sources, data, training, wanted.done, [&](auto samples, std::int64_t cyclic_step) {
    return std::make_unique<BertBatches>(std::move(samples),
                                         BertBatches::Plan{.length = plan.length,
                                                           .sentence_order = sentence_order,
                                                           .pad = ids.pad,
                                                           .text = ids.text_ids(),
                                                           .cyclic_step = cyclic_step});
  });
}

}  // namespace colonnade::data
