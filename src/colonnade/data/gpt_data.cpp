// See gpt_batches.h: opening the data of a run, from settings to one sample source per split.
#include <algorithm>
#include <numeric>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/config/parse.h"
#include "colonnade/data/gpt_batches.h"
#include "colonnade/data/indexed_dataset.h"
#include "colonnade/data/mock_source.h"

namespace colonnade::data {
namespace {

namespace fs = std::filesystem;
using Sources = std::array<std::shared_ptr<const SampleSource>, 3>;

/// Sequences with what tells this state of them from any other.
struct Opened {
  std::shared_ptr<const TokenSource> source;
  std::string identity;
  IndexCache cache{fs::path()};
};

/// What all splits share.
struct Context {
  const config::Data& data;
  std::int64_t seq_length;
  std::uint32_t seed;
};

Opened open_prefix(const std::string& prefix, const Context& context) {
  Opened opened;
  opened.source = std::make_shared<IndexedDataset>(prefix);
  for (const fs::path& path : {idx_path(prefix), bin_path(prefix)})
    opened.identity += fmt::format("{} {} bytes, changed {}\n", fs::canonical(path).string(),
                                   fs::file_size(path), fs::last_write_time(path).time_since_epoch().count());
  opened.cache = IndexCache(context.data.data_cache_path.empty()
                                ? fs::absolute(idx_path(prefix)).parent_path() / "colonnade_cache"
                                : fs::path(context.data.data_cache_path));
  return opened;
}

/// One data set's part of a split; null (with a warning) when an evaluation split is empty.
std::shared_ptr<const SampleSource> open_part(const Opened& opened, const Context& context, Split split,
                                              const Fraction& fraction,
                                              std::optional<std::int64_t> num_samples) {
  const char* name = kSplitNames[static_cast<std::size_t>(split)];
  const GptIndexPlan plan{.sequences = range_of(fraction, opened.source->num_sequences()),
                          .sequence_length = context.seq_length,
                          .num_samples = num_samples,
                          .seed = context.seed};
  std::int64_t tokens = 0;
  for (std::int64_t i = plan.sequences.begin; i < plan.sequences.end; ++i) tokens += opened.source->length(i);
  if (tokens < context.seq_length + 1) {
    const std::string text =
        fmt::format("{}: the {} split must hold one sample of {} tokens; got {} tokens in {} sequences",
                    opened.source->name(), name, context.seq_length + 1, tokens, plan.sequences.size());
    if (split == Split::kTrain) throw DataError(text + "; add data, lower --seq-length or change --split");
    if (tokens == 0 || !num_samples) {
      log::warning("{}; there will be no {} batches", text, name);
      return nullptr;
    }
    log::warning("{}; its tokens repeat inside each sample", text);
  }
  return std::make_shared<GptDataset>(opened.source, plan, opened.cache, opened.identity);
}

std::shared_ptr<const SampleSource> open_blend(const Blend& blend, const std::vector<Opened>& opened,
                                               const Context& context, Split split, const Fraction& fraction,
                                               std::int64_t target) {
  if (target == 0) return nullptr;
  if (opened.size() == 1 && blend.weights.empty())
    return open_part(opened[0], context, split, fraction, target);
  const bool weighted = !blend.weights.empty();
  std::vector<std::int64_t> asked;
  if (weighted) asked = samples_per_dataset(blend.weights, target, context.data.mid_level_dataset_surplus);
  std::vector<std::shared_ptr<const SampleSource>> parts;
  std::vector<double> weights = blend.weights;
  std::int64_t size = 0;
  for (std::size_t i = 0; i < opened.size(); ++i) {
    parts.push_back(
        open_part(opened[i], context, split, fraction, weighted ? std::optional(asked[i]) : std::nullopt));
    if (parts.back() == nullptr) return nullptr;
    if (!weighted) weights.push_back(static_cast<double>(parts.back()->size()));
    size += weighted ? 0 : parts.back()->size();
  }
  if (weighted) {
    const auto exact = samples_per_dataset(blend.weights, target, 0.0);
    size = std::accumulate(exact.begin(), exact.end(), std::int64_t{0});
  } else {
    size = std::min(size, target);
  }
  return std::make_shared<BlendedDataset>(std::move(parts),
                                          blend_by_weight(normalize(weights), size, opened[0].cache));
}

std::vector<Opened> open_all(const Blend& blend, const Context& context) {
  std::vector<Opened> opened;
  for (const std::string& prefix : blend.prefixes) opened.push_back(open_prefix(prefix, context));
  return opened;
}

Sources open_paths(const Context& context, const std::array<std::int64_t, 3>& counts) {
  const Blend blend = parse_blend(context.data.data_path);
  const std::vector<Opened> opened = open_all(blend, context);
  const SplitFractions fractions = parse_split(context.data.split);
  Sources sources;
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (fractions[i])
      sources[i] = open_blend(blend, opened, context, static_cast<Split>(i), *fractions[i], counts[i]);
  return sources;
}

Sources open_paths_per_split(const Context& context, const std::array<std::int64_t, 3>& counts) {
  Sources sources;
  const std::array paths{&context.data.train_data_path, &context.data.valid_data_path,
                         &context.data.test_data_path};
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (paths[i]->empty()) continue;
    Blend blend = parse_blend(*paths[i]);
    if (blend.prefixes.size() == 1) blend.weights.clear();
    sources[i] = open_blend(blend, open_all(blend, context), context, static_cast<Split>(i), Fraction{0, 1},
                            counts[i]);
  }
  return sources;
}

Sources open_mock(const Context& context, const std::array<std::int64_t, 3>& counts, const TokenIds& ids) {
  Opened mock;
  mock.source = std::make_shared<MockSource>(ids.vocab_size, ids.eod);
  const SplitFractions thirds = parse_split("1,1,1");
  Sources sources;
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (counts[i] > 0) sources[i] = open_part(mock, context, static_cast<Split>(i), *thirds[i], counts[i]);
  return sources;
}

/// Refuses splits that the run reads and that hold no epoch of cyclic: the validation comes late.
void require_epochs(const Sources& sources, const config::Training& training, const SoFar& done) {
  const bool validates = evaluations(training, last_iteration(training, done)) > 0;
  const std::int64_t batch = training.global_batch_size;
  std::vector<std::string> found;
  for (std::size_t i = 0; i < sources.size(); ++i)
    if ((i == 0 ? !training.skip_train : validates) && sources[i] != nullptr && sources[i]->size() < batch)
      found.push_back(
          fmt::format("--dataloader-type cyclic: the {} data must hold one global batch of {} samples; got "
                      "{}; add data, change --split, or lower --global-batch-size",
                      kSplitNames[i], batch, sources[i]->size()));
  config::require_none(found);
}

}  // namespace

Sources open_gpt_samples(const config::Data& data, const std::array<std::int64_t, 3>& counts,
                         std::int64_t seq_length, std::int64_t seed, const TokenIds& ids) {
  if (seq_length < 1)
    throw ConfigError(fmt::format("--seq-length: must be at least 1; got {}; give it", seq_length));
  if (seed < 0 || seed > std::int64_t{0xffffffff})
    throw ConfigError(
        fmt::format("--seed: must be 0 to 4294967295, as NumPy takes it; got {}; choose another", seed));
  const bool per_split =
      !data.train_data_path.empty() || !data.valid_data_path.empty() || !data.test_data_path.empty();
  const int given = (data.mock_data ? 1 : 0) + (data.data_path.empty() ? 0 : 1) + (per_split ? 1 : 0);
  if (given != 1)
    throw ConfigError(fmt::format(
        "data: exactly one of --data-path, --train/--valid/--test-data-path and --mock-data must be "
        "given; got {}; {}",
        given, given == 0 ? "add --mock-data to try without data" : "leave the others out"));
  const Context context{data, seq_length, static_cast<std::uint32_t>(seed)};
  if (data.mock_data) return open_mock(context, counts, ids);
  return per_split ? open_paths_per_split(context, counts) : open_paths(context, counts);
}

GptSplits open_gpt_batches(const config::Data& data, const config::Training& training, const TokenIds& ids,
                           const SoFar& done) {
  if (data.dataloader_type != "single" && data.dataloader_type != "cyclic")
    throw ConfigError(fmt::format("--dataloader-type: must be single or cyclic; got '{}'; choose one",
                                  data.dataloader_type));
  const auto sources =
      open_gpt_samples(data, sample_counts(training, done), training.seq_length, training.seed, ids);
  const bool cyclic = data.dataloader_type == "cyclic";
  if (cyclic) require_epochs(sources, training, done);
  const GptBatches::Plan plan{.seq_length = training.seq_length,
                              .rules = {.eod = ids.eod,
                                        .pad = ids.pad,
                                        .reset_position_ids = data.reset_position_ids,
                                        .reset_attention_mask = data.reset_attention_mask,
                                        .eod_mask_loss = data.eod_mask_loss},
                              .vocab_size = ids.vocab_size,
                              .cyclic_step = cyclic ? training.global_batch_size : 0};
  GptSplits splits;
  for (std::size_t i = 0; i < splits.size(); ++i)
    if (sources[i] != nullptr) splits[i] = std::make_unique<GptBatches>(sources[i], plan);
  return splits;
}

}  // namespace colonnade::data
