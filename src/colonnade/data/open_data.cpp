// See open_data.h.
#include "colonnade/data/open_data.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <numeric>
#include <thread>
#include <vector>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/base/progress.h"
#include "colonnade/config/batch_schedule.h"
#include "colonnade/config/parse.h"
#include "colonnade/data/indexed/indexed_dataset.h"

namespace colonnade::data {
namespace {

namespace fs = std::filesystem;

/// Arguments common to all splits.
struct Context {
  const config::Data& data;
  const SampleSourceFactory& factory;
};

/// The cache in --data-cache-path, or in `folder` if that is not set.
IndexCache cache_in(const fs::path& folder, const config::Data& data) {
  return IndexCache(data.data_cache_path.empty() ? folder : fs::path(data.data_cache_path));
}

/// Megatron's cache folder of the indices of a data set or blend.
fs::path indices_of(const std::string& prefix, const std::string& name) {
  return fs::absolute(prefix) / "cache" / (name + "_indices");
}

OpenedDataset open_prefix(const std::string& prefix, const Context& context) {
  if (context.factory.read)
    return context.factory.read(
        prefix, cache_in(fs::absolute(prefix).parent_path() / "colonnade_cache", context.data));
  const auto fingerprint = [&] {
    return file_fingerprint(idx_path(prefix)) + file_fingerprint(bin_path(prefix));
  };
  OpenedDataset opened;
  try {
    opened.fingerprint = fingerprint();
  } catch (const fs::filesystem_error&) {  // IndexedDataset reports the missing file
  }
  opened.source = std::make_shared<IndexedDataset>(prefix);
  if (opened.fingerprint != fingerprint())
    throw DataError(
        fmt::format("{} must not change while it is opened; got modified files; start again", prefix));
  opened.changed = std::max(fs::last_write_time(idx_path(prefix)), fs::last_write_time(bin_path(prefix)));
  opened.cache = cache_in(indices_of(prefix, context.factory.dataset_class.name), context.data);
  return opened;
}

/// Cache key of the indices of a split, compatible with Megatron.
CacheKey key_of(const OpenedDataset& opened, const std::string& prefix, const Context& context,
                const SplitRequest& request) {
  const DatasetClass& dataset_class = context.factory.dataset_class;
  if (dataset_class.name.empty()) return {};
  const bool per_split = context.data.data_path.empty();
  return {.kind = dataset_class.has_split_in_file_names() ? dataset_class.name + "-" + request.name()
                                                          : dataset_class.name,
          .description = describe_dataset(dataset_class, prefix, request.num_samples, request.split,
                                          per_split ? std::nullopt : std::optional(context.data.split)),
          .fingerprint = opened.fingerprint,
          .changed = opened.changed};
}

using SourceList = std::vector<std::shared_ptr<const SampleSource>>;

/// Opens the data sets of a blend with two threads, so that building one index overlaps writing another.
/// Stops at a data set without samples: its source and all later ones are null. Throws the error of the first
/// data set that fails.
SourceList open_requests(const std::vector<OpenedDataset>& opened, const std::vector<SplitRequest>& requests,
                         const SampleSourceFactory& factory) {
  SourceList sources(requests.size());
  std::vector<std::exception_ptr> errors(requests.size());
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> ended = false;
  const auto work = [&] {
    while (!ended) {
      // Claimed in order, so that all data sets before a failing one are opened.
      const std::size_t i = next++;
      if (i >= requests.size()) return;
      try {
        sources[i] = factory.open(opened[i], requests[i]);
      } catch (...) {
        errors[i] = std::current_exception();
      }
      if (sources[i] == nullptr) ended = true;
    }
  };
  {
    const std::jthread second([&work, &page = progress()] {
      const ProgressScope scope(page);
      work();
    });
    work();
  }
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (errors[i]) std::rethrow_exception(errors[i]);
    if (sources[i] == nullptr) break;
  }
  return sources;
}

/// SplitRequest::if_empty of an evaluation split of one data set, or of a data set in a blend.
std::string if_empty(const config::Data& data, const SplitRequest& request, bool in_blend) {
  const bool per_split = data.data_path.empty();
  if (!in_blend)
    return fmt::format("there will be no {} batches; add data{}", request.name(),
                       per_split ? "" : " or raise the split's share (--split)");
  const bool valid = request.split == Split::kValid;
  const std::string flag = valid ? "--valid-data-path" : "--test-data-path";
  return fmt::format(
      "the {} split is not evaluated: a blend must hold samples of each data set; {}",
      valid ? "valid" : "test",
      per_split
          ? fmt::format("remove it from {}, or add data to it", flag)
          : fmt::format("raise the split's share (--split), add data to it, or name the data of each split "
                        "(--train-data-path, {})",
                        flag));
}

/// One request per data set of a blend: `num_samples` of each, or one epoch if that is empty.
std::vector<SplitRequest> requests_of(const Blend& blend, const std::vector<OpenedDataset>& opened,
                                      const Context& context, SplitRequest request,
                                      const std::vector<std::int64_t>& num_samples) {
  std::vector<SplitRequest> requests;
  for (std::size_t i = 0; i < opened.size(); ++i) {
    request.num_samples = num_samples.empty() ? std::nullopt : std::optional(num_samples[i]);
    request.key = key_of(opened[i], blend.prefixes[i], context, request);
    requests.push_back(request);
  }
  return requests;
}

/// Cache key of a blend's index.
CacheKey key_of_blend(const Blend& blend, const SplitRequest& request, std::string description) {
  std::string fingerprint;
  for (const std::string& prefix : blend.prefixes)
    fingerprint += fmt::format("data at {}\n", fs::weakly_canonical(fs::absolute(prefix)).string());
  return {.kind = fmt::format("BlendedDataset-{}", request.name()),
          .description = std::move(description),
          .fingerprint = std::move(fingerprint),
          .settings = "all of them in the description\n"};
}

/// Opens a blend; `request.num_samples` is its total.
std::shared_ptr<const SampleSource> open_blend(const Blend& blend, const std::vector<OpenedDataset>& opened,
                                               const Context& context, SplitRequest request) {
  const std::optional<std::int64_t> target = request.num_samples;
  if (target == 0) return nullptr;
  if (opened.size() == 1 && blend.weights.empty()) {
    request.key = key_of(opened[0], blend.prefixes[0], context, request);
    request.if_empty = if_empty(context.data, request, false);
    return context.factory.open(opened[0], request);
  }
  const bool weighted = !blend.weights.empty();
  if (weighted && !target)
    throw ConfigError(fmt::format(
        "--full-validation requires a blend without weights; got {} data sets with weights; remove it, or give "
        "--valid-data-path without weights",
        blend.weights.size()));
  std::vector<std::int64_t> num_samples;
  request.if_empty = if_empty(context.data, request, true);
  if (weighted)
    num_samples = samples_per_dataset(blend.weights, *target, context.data.mid_level_dataset_surplus);
  const std::vector<SplitRequest> requests = requests_of(blend, opened, context, request, num_samples);
  std::vector<std::string> descriptions;
  for (std::size_t i = 0; i < requests.size(); ++i)
    descriptions.push_back(requests[i].key.description.empty() ? json_of(blend.prefixes[i])
                                                               : requests[i].key.description);
  SourceList sources = open_requests(opened, requests, context.factory);
  std::vector<std::int64_t> sizes;
  for (const auto& source : sources) {
    if (source == nullptr) return nullptr;  // after a warning
    sizes.push_back(source->size());
  }
  const IndexCache cache = context.factory.dataset_class.name.empty()
                               ? opened[0].cache
                               : cache_in(indices_of(blend.prefixes[0], "BlendedDataset"), context.data);
  if (!target) {
    const CacheKey key = key_of_blend(blend, request, describe_blend(descriptions, request.split, sizes));
    return std::make_shared<BlendedDataset>(std::move(sources), blend_exhaustively(sizes, cache, key));
  }
  const auto exact =
      weighted ? samples_per_dataset(blend.weights, *target, 0.0) : std::vector<std::int64_t>(sizes);
  const std::int64_t all = std::accumulate(exact.begin(), exact.end(), std::int64_t{0});
  const std::int64_t size = weighted ? all : std::min(all, *target);
  const std::vector<double> weights =
      normalize(weighted ? blend.weights : std::vector<double>(sizes.begin(), sizes.end()));
  const CacheKey key =
      key_of_blend(blend, request, describe_blend(descriptions, request.split, weights, size));
  return std::make_shared<BlendedDataset>(std::move(sources), blend_by_weight(weights, size, cache, key));
}

/// Opens one epoch of each validation set; none may be empty.
std::shared_ptr<const SampleSource> open_validation_sets(const Blend& sets,
                                                         const std::vector<OpenedDataset>& opened,
                                                         const Context& context, SplitRequest request) {
  COL_CHECK(!request.num_samples,
            "--multiple-validation-sets: each set must be evaluated in one pass; got {} samples; add "
            "--full-validation",
            *request.num_samples);
  request.if_empty = "each validation set must hold samples";
  SourceList sources =
      open_requests(opened, requests_of(sets, opened, context, std::move(request), {}), context.factory);
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (sources[i] == nullptr)
      throw DataError(fmt::format(
          "{}: a validation set must hold samples; got none; add data, lower --seq-length or remove it from "
          "--valid-data-path",
          sets.prefixes[i]));
  return std::make_shared<ConcatDataset>(std::move(sources));
}

std::vector<OpenedDataset> open_all(const Blend& blend, const Context& context) {
  std::vector<OpenedDataset> opened;
  for (const std::string& prefix : blend.prefixes) opened.push_back(open_prefix(prefix, context));
  return opened;
}

Sources open_paths(const Context& context, const SampleCounts& counts) {
  const Blend blend = parse_blend(context.data.data_path);
  const std::vector<OpenedDataset> opened = open_all(blend, context);
  const SplitFractions fractions = parse_split(context.data.split);
  Sources sources;
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (fractions[i])
      sources[i] = open_blend(blend, opened, context, {static_cast<Split>(i), *fractions[i], counts[i]});
  return sources;
}

Sources open_paths_per_split(const Context& context, const SampleCounts& counts) {
  Sources sources;
  const std::array paths{&context.data.train_data_path, &context.data.valid_data_path,
                         &context.data.test_data_path};
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (paths[i]->empty()) continue;
    Blend blend = parse_blend(*paths[i]);
    if (blend.prefixes.size() == 1) blend.weights.clear();
    const bool sets = context.data.multiple_validation_sets && static_cast<Split>(i) == Split::kValid;
    const auto open = sets && counts[i] != 0 ? open_validation_sets : open_blend;
    sources[i] =
        open(blend, open_all(blend, context), context, {static_cast<Split>(i), Fraction{0, 1}, counts[i]});
  }
  return sources;
}

Sources open_mock(const Context& context, const SampleCounts& counts) {
  if (!context.factory.mock)
    throw ConfigError("--mock-data requires a kind of data that has mock data; got none; give --data-path");
  OpenedDataset mock;
  mock.source = context.factory.mock();
  const SplitFractions thirds = parse_split("1,1,1");
  Sources sources;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (counts[i] != 0) {
      SplitRequest request{static_cast<Split>(i), *thirds[i], counts[i]};
      request.if_empty = fmt::format("there will be no {} batches; lower --seq-length", request.name());
      sources[i] = context.factory.open(mock, request);
    }
  }
  return sources;
}

}  // namespace

Sources open_sources(const config::Data& data, const SampleCounts& counts,
                     const SampleSourceFactory& factory) {
  const bool per_split =
      !data.train_data_path.empty() || !data.valid_data_path.empty() || !data.test_data_path.empty();
  COL_CHECK(data.data_args_path.empty() && data.per_split_data_args_path.empty(),
            "data: files with data paths must be read first; got {}{}; use with_data_args",
            data.data_args_path, data.per_split_data_args_path);
  const int given = (data.mock_data ? 1 : 0) + (data.data_path.empty() ? 0 : 1) + (per_split ? 1 : 0);
  if (given != 1)
    throw ConfigError(fmt::format(
        "data: exactly one of --data-path, --train/--valid/--test-data-path and --mock-data must be "
        "given; got {}; {}",
        given, given == 0 ? "add --mock-data to try without data" : "remove the others"));
  const Context context{data, factory};
  if (data.mock_data) return open_mock(context, counts);
  return per_split ? open_paths_per_split(context, counts) : open_paths(context, counts);
}

std::uint32_t numpy_seed(std::int64_t seed) {
  if (seed < 0 || seed > std::int64_t{0xffffffff})
    throw ConfigError(
        fmt::format("--seed must be 0 to 4294967295, NumPy's range; got {}; choose another", seed));
  return static_cast<std::uint32_t>(seed);
}

namespace {

/// The cyclic_step of the split's Batches: 0 for --dataloader-type single and for --full-validation, the
/// global batch size of the split for cyclic. Throws ConfigError for another type.
std::int64_t cyclic_step(const config::Data& data, const config::Training& training, Split split) {
  if (data.dataloader_type != "single" && data.dataloader_type != "cyclic")
    throw ConfigError(fmt::format("--dataloader-type must be single or cyclic; got '{}'; choose one",
                                  data.dataloader_type));
  const bool in_order =
      data.dataloader_type == "single" || (training.full_validation && split == Split::kValid);
  if (in_order) return 0;
  return split == Split::kTrain ? training.global_batch_size : config::eval_batch_size(training);
}

/// Throws ConfigError if a split that the run reads has no full cyclic epoch; validation would only fail
/// late.
void require_epochs(const Sources& sources, const config::Data& data, const config::Training& training,
                    const RunProgress& done) {
  if (cyclic_step(data, training, Split::kTrain) == 0) return;
  const bool validates = evaluations(training, last_iteration(training, done)) > 0;
  std::vector<std::string> found;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::int64_t batch = cyclic_step(data, training, static_cast<Split>(i));
    if (batch == 0) continue;
    if ((i == 0 ? !training.skip_train : validates) && sources[i] != nullptr && sources[i]->size() < batch)
      found.push_back(
          fmt::format("--dataloader-type cyclic: the {} data must hold one global batch of {} samples; got "
                      "{}; add data, change --split, or lower --global-batch-size",
                      kSplitNames[i], batch, sources[i]->size()));
  }
  config::require_none(found);
}

}  // namespace

Splits to_batches(const Sources& sources, const config::Data& data, const config::Training& training,
                  const RunProgress& done, const BatchesFactory& make) {
  require_epochs(sources, data, training, done);
  Splits splits;
  for (std::size_t i = 0; i < splits.size(); ++i)
    if (sources[i] != nullptr)
      splits[i] = make(sources[i], cyclic_step(data, training, static_cast<Split>(i)));
  return splits;
}

}  // namespace colonnade::data
