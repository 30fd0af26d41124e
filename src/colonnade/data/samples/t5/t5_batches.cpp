// See t5_batches.h.
#include "colonnade/data/samples/t5/t5_batches.h"

#include <algorithm>
#include <limits>

#include "colonnade/base/error.h"
#include "colonnade/data/mock_source.h"
#include "colonnade/data/open_data.h"
#include "colonnade/data/samples/t5/t5_dataset.h"

namespace colonnade::data {
namespace {

/// Padding of encoder and decoder rows: differs from every id, even of damaged data.
constexpr std::int64_t kNoToken = std::numeric_limits<std::int64_t>::min();

T5Plan plan_of(const config::Data& data, const config::Training& training, const T5Ids& ids) {
  constexpr std::int64_t kMost = 0x7fffffff;
  if (training.seq_length < 4 || training.seq_length > kMost)
    throw ConfigError(fmt::format(
        "--seq-length must be 4 to {} for the encoder, including two tokens that stay unused; got {}; set it",
        kMost, training.seq_length));
  if (training.decoder_seq_length < 1 || training.decoder_seq_length > kMost)
    throw ConfigError(fmt::format(
        "--decoder-seq-length must be 1 to {}; got {}; set it, typically to a quarter of --seq-length", kMost,
        training.decoder_seq_length));
  if (ids.sentinels.empty())
    throw ConfigError(
        "--vocab-extra-ids must provide sentinels for masked spans; got none; set 100 as in T5");
  T5Plan plan{.encoder_length = training.seq_length,
              .decoder_length = training.decoder_seq_length,
              .sentences = {.max_length = training.seq_length - 2,
                            .short_seq_prob = data.short_seq_prob,
                            .seed = numpy_seed(training.seed)},
              .masking = {.probability = data.mask_prob,
                          .max_words = 10,
                          .geometric = true,
                          .cls = ids.cls,
                          .sep = ids.sep},
              .ids = ids};
  return plan;
}

DatasetClass class_of(const config::Data& data, const config::Training& training, const T5Ids& ids) {
  return {.name = "T5MaskedWordPieceDataset",
          .seed = training.seed,
          .seq_length = training.seq_length,
          .tokenizer = tokenizer_identity(data, ids.vocab_size),
          .extra_keys = {{"masking_probability", json_of(data.mask_prob)},
                         {"short_sequence_probability", json_of(data.short_seq_prob)},
                         {"masking_max_ngram", "10"},
                         {"masking_do_full_word", "true"},
                         {"masking_do_permutation", "false"},
                         {"masking_use_longer_ngrams", "false"},
                         {"masking_use_geometric_distribution", "true"},
                         {"sequence_length_decoder", json_of(training.decoder_seq_length)}}};
}

}  // namespace

T5Batches::T5Batches(std::shared_ptr<const SampleSource> samples, const Plan& plan)
    : Batches(std::move(samples), plan.cyclic_step), plan_(plan) {}

HostBatch T5Batches::make(std::span<const std::int64_t> chosen) const {
  const auto encoder = static_cast<std::size_t>(plan_.encoder_length);
  const auto decoder = static_cast<std::size_t>(plan_.decoder_length);
  HostBatch batch;
  batch.seq = plan_.decoder_length;
  batch.encoder_seq = plan_.encoder_length;
  std::vector<std::int64_t> numbers(encoder + 2 * decoder);
  for (const std::int64_t sample : chosen) {
    samples().tokens(sample, kNoToken, numbers);
    const std::span<std::int64_t> text = std::span(numbers).first(encoder);
    const std::span<std::int64_t> labels = std::span(numbers).last(decoder);
    for (const std::int64_t id : text) batch.encoder_padding.push_back(id == kNoToken ? 1 : 0);
    for (const std::int64_t label : labels) batch.loss_mask.push_back(label == -1 ? 0.0F : 1.0F);
    if (text.front() == kNoToken)
      throw DataError(fmt::format(
          "{}: a sample must have tokens; got none in sample {}; a document of the data is empty, rebuild the data with "
          "`colonnade preprocess`, which drops such documents",
          samples().name(), sample));
    std::ranges::replace(labels, std::int64_t{-1}, std::int64_t{0});
    for (const std::int64_t pad : {kNoToken, plan_.pad}) std::ranges::replace(numbers, pad, std::int64_t{0});
    check_vocabulary(numbers, plan_.text.vocab_size, sample);
    const auto tokens = std::span(numbers).subspan(encoder, decoder);
    batch.encoder_tokens.insert(batch.encoder_tokens.end(), text.begin(), text.end());
    batch.tokens.insert(batch.tokens.end(), tokens.begin(), tokens.end());
    batch.labels.insert(batch.labels.end(), labels.begin(), labels.end());
  }
  return batch;
}

Splits open_t5_batches(const config::Data& data, const config::Training& training, const T5Ids& ids,
                       const DataRequest& wanted) {
  const T5Plan plan = plan_of(data, training, ids);
  const auto open = [&plan](const OpenedDataset& opened, const SplitRequest& request) {
    return open_sentences<T5Dataset>(opened, request, plan);
  };
  const auto mock = [&ids] { return std::make_shared<MockSource>(std::ranges::min(ids.sentinels), ids.eos); };
  const Sources sources =
      open_sources(data, sample_counts(training, wanted),
                   {.open = open, .mock = mock, .dataset_class = class_of(data, training, ids)});
  return to_batches(sources, data, training, wanted.done, [&](auto samples, std::int64_t cyclic_step) {
    return std::make_unique<T5Batches>(std::move(samples),
                                       T5Batches::Plan{.encoder_length = plan.encoder_length,
                                                       .decoder_length = plan.decoder_length,
                                                       .pad = ids.pad,
                                                       .text = ids.text_ids(),
                                                       .cyclic_step = cyclic_step});
  });
}

}  // namespace colonnade::data
