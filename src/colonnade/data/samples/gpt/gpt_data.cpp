// Opens the data of GPT; see gpt_batches.h.
#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/data/mock_source.h"
#include "colonnade/data/open_data.h"
#include "colonnade/data/samples/gpt/fill_in_the_middle.h"
#include "colonnade/data/samples/gpt/gpt_batches.h"

namespace colonnade::data {
namespace {

std::shared_ptr<const SampleSource> open_gpt_split(const OpenedDataset& opened, const SplitRequest& request,
                                                   std::int64_t seq_length, std::uint32_t seed) {
  const GptIndexPlan plan{.sequences = range_of(request.fraction, opened.source->num_sequences()),
                          .sequence_length = seq_length,
                          .num_samples = request.num_samples,
                          .seed = seed};
  std::int64_t tokens = 0;
  for (std::int64_t i = plan.sequences.begin; i < plan.sequences.end; ++i) tokens += opened.source->length(i);
  if (tokens < seq_length + 1) {
    const std::string text =
        fmt::format("{}: the {} split must hold one sample of {} tokens; got {} tokens in {} sequences",
                    opened.source->name(), request.name(), seq_length + 1, tokens, plan.sequences.size());
    if (request.split == Split::kTrain)
      throw DataError(text + "; add data, lower --seq-length or change --split");
    if (tokens == 0 || !request.num_samples) {
      log::warning("{}; {}", text, request.if_empty);
      return nullptr;
    }
    log::warning("{}; its tokens repeat within each sample", text);
  }
  return std::make_shared<GptDataset>(opened.source, plan, opened.cache, request.key);
}

}  // namespace

Sources open_gpt_samples(const config::Data& data, const SampleCounts& counts, std::int64_t seq_length,
                         std::int64_t seed, const TokenIds& ids) {
  if (seq_length < 1)
    throw ConfigError(fmt::format("--seq-length must be at least 1; got {}; set it", seq_length));
  if (data.fim.enabled && (ids.tokenizer == nullptr || data.mock_data))
    throw ConfigError(fmt::format("--fim-data requires the text of data files; got {}; remove it, or give {}",
                                  data.mock_data ? "--mock-data" : "no tokenizer",
                                  data.mock_data ? "--data-path" : "--tokenizer-type"));
  const FimRules fim = data.fim.enabled ? fim_rules(data.fim, *ids.tokenizer) : FimRules{};
  const auto open = [&, seed = numpy_seed(seed)](const OpenedDataset& opened, const SplitRequest& request) {
    std::shared_ptr<const SampleSource> samples = open_gpt_split(opened, request, seq_length, seed);
    if (samples != nullptr && data.fim.enabled)
      samples = std::make_shared<FimDataset>(std::move(samples), fim, ids.tokenizer, seed);
    return samples;
  };
  // Without a tokenizer the last id ends documents, as in T5's mock text.
  const std::int64_t mock_eod = ids.eod >= 0 ? ids.eod : ids.vocab_size - 1;
  const auto mock = [&ids, mock_eod] { return std::make_shared<MockSource>(ids.vocab_size, mock_eod); };
  return open_sources(data, counts,
                      {.open = open,
                       .mock = mock,
                       .dataset_class = {.name = data.fim.enabled ? "GPTFIMDataset" : "GPTDataset",
                                         .seed = seed,
                                         .seq_length = seq_length,
                                         .tokenizer = tokenizer_identity(data, ids.vocab_size)}});
}

Splits open_gpt_batches(const config::Data& data, const config::Training& training, const TokenIds& ids,
                        const DataRequest& wanted) {
  const auto sources =
      open_gpt_samples(data, sample_counts(training, wanted), training.seq_length, training.seed, ids);
  GptBatches::Plan plan{.seq_length = training.seq_length,
                        .rules = {.eod = ids.eod,
                                  .pad = ids.pad,
                                  .reset_position_ids = data.reset_position_ids,
                                  .eod_mask_loss = data.eod_mask_loss},
                        .documents = data.inter_document_masking ? DocumentSeparators::kSequences
                                     : data.reset_attention_mask ? DocumentSeparators::kEnds
                                                                 : DocumentSeparators::kNone,
                        .vocab_size = ids.vocab_size};
  return to_batches(sources, data, training, wanted.done, [&plan](auto samples, std::int64_t cyclic_step) {
    plan.cyclic_step = cyclic_step;
    return std::make_unique<GptBatches>(std::move(samples), plan);
  });
}

}  // namespace colonnade::data
