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
#include "colonnade/config/parse.h"
#include "colonnade/data/indexed/indexed_dataset.h"

namespace colonnade::data {
namespace {

namespace fs = std::filesystem;

/// What all splits share.
struct Context {
  const config::Data& data;
  const SampleMaker& maker;
};

/// --data-cache-path, else `folder`.
IndexCache cache_in(const fs::path& folder, const config::Data& data) {
  return IndexCache(data.data_cache_path.empty() ? folder : fs::path(data.data_cache_path));
}

/// Where Megatron keeps the indices of a data set, or would keep those of a blend.
fs::path indices_of(const std::string& prefix, const std::string& name) {
  return fs::absolute(prefix) / "cache" / (name + "_indices");
}

Opened open_prefix(const std::string& prefix, const Context& context) {
  if (context.maker.read)
    return context.maker.read(prefix,
                              cache_in(fs::absolute(prefix).parent_path() / "colonnade_cache", context.data));
  const auto state = [&] { return state_of_file(idx_path(prefix)) + state_of_file(bin_path(prefix)); };
  Opened opened;
  try {
    opened.identity = state();
  } catch (const fs::filesystem_error&) {  // the data set says in its own words what is not there
  }
  opened.source = std::make_shared<IndexedDataset>(prefix);
  if (opened.identity != state())
    throw DataError(
        fmt::format("{} must stay as it is while it is opened; got files that changed; start again", prefix));
  opened.changed = std::max(fs::last_write_time(idx_path(prefix)), fs::last_write_time(bin_path(prefix)));
  opened.cache = cache_in(indices_of(prefix, context.maker.about.name), context.data);
  return opened;
}

/// The key of a part's indices, in Megatron's words.
CacheKey key_of(const Opened& opened, const std::string& prefix, const Context& context, const Part& part) {
  const DatasetClass& about = context.maker.about;
  if (about.name.empty()) return {};
  const bool per_split = context.data.data_path.empty();
  return {.kind = about.names_split() ? about.name + "-" + part.name() : about.name,
          .description = describe_dataset(about, prefix, part.num_samples, part.split,
                                          per_split ? std::nullopt : std::optional(context.data.split)),
          .state = opened.identity,
          .changed = opened.changed};
}

using Parts = std::vector<std::shared_ptr<const SampleSource>>;

/// The parts of a blend, opened by two threads: while the indices of one are written, the next one's are
/// built. Stops at a part without samples, which is null as are those behind it. Throws what the first faulty
/// part throws.
Parts open_parts(const std::vector<Opened>& opened, const std::vector<Part>& parts,
                 const SampleMaker& maker) {
  Parts sources(parts.size());
  std::vector<std::exception_ptr> errors(parts.size());
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> ended = false;
  const auto work = [&] {
    while (!ended) {
      // Parts are begun in their order: all in front of a faulty one are opened.
      const std::size_t i = next++;
      if (i >= parts.size()) return;
      try {
        sources[i] = maker.open(opened[i], parts[i]);
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

/// Part::if_empty of an evaluation split: of one data set, or of a part of a blend.
std::string if_empty(const config::Data& data, const Part& part, bool in_blend) {
  const bool per_split = data.data_path.empty();
  if (!in_blend)
    return fmt::format("there will be no {} batches; add data{}", part.name(),
                       per_split ? "" : " or raise the split's share (--split)");
  const bool valid = part.split == Split::kValid;
  const std::string flag = valid ? "--valid-data-path" : "--test-data-path";
  return fmt::format(
      "nothing is {}: a blend must hold samples of each data set; {}", valid ? "validated" : "tested",
      per_split
          ? fmt::format("leave it out of {}, or give it more data", flag)
          : fmt::format("raise the split's share (--split), give it more data, or name the data of each "
                        "split (--train-data-path, {})",
                        flag));
}

/// The data sets of a blend as their own parts: `asked` samples of each, or one pass where that is empty.
std::vector<Part> parts_of(const Blend& blend, const std::vector<Opened>& opened, const Context& context,
                           Part part, const std::vector<std::int64_t>& asked) {
  std::vector<Part> parts;
  for (std::size_t i = 0; i < opened.size(); ++i) {
    part.num_samples = asked.empty() ? std::nullopt : std::optional(asked[i]);
    part.key = key_of(opened[i], blend.prefixes[i], context, part);
    parts.push_back(part);
  }
  return parts;
}

/// What a blend's index is kept by, but for its description.
CacheKey key_of_blend(const Blend& blend, const Part& part, std::string description) {
  std::string state;
  for (const std::string& prefix : blend.prefixes)
    state += fmt::format("data at {}\n", fs::weakly_canonical(fs::absolute(prefix)).string());
  return {.kind = fmt::format("BlendedDataset-{}", part.name()),
          .description = std::move(description),
          .state = std::move(state),
          .settings = "all of them in the description\n"};
}

/// `part.num_samples`: of the whole blend.
std::shared_ptr<const SampleSource> open_blend(const Blend& blend, const std::vector<Opened>& opened,
                                               const Context& context, Part part) {
  const std::optional<std::int64_t> target = part.num_samples;
  if (target == 0) return nullptr;
  if (opened.size() == 1 && blend.weights.empty()) {
    part.key = key_of(opened[0], blend.prefixes[0], context, part);
    part.if_empty = if_empty(context.data, part, false);
    return context.maker.open(opened[0], part);
  }
  const bool weighted = !blend.weights.empty();
  if (weighted && !target)
    throw ConfigError(fmt::format(
        "--full-validation: one pass is of data sets without weights; got a blend with {} of them; "
        "leave it out, or give --valid-data-path without weights",
        blend.weights.size()));
  std::vector<std::int64_t> asked;
  part.if_empty = if_empty(context.data, part, true);
  if (weighted) asked = samples_per_dataset(blend.weights, *target, context.data.mid_level_dataset_surplus);
  const std::vector<Part> plans = parts_of(blend, opened, context, part, asked);
  std::vector<std::string> described;
  for (std::size_t i = 0; i < plans.size(); ++i)
    described.push_back(plans[i].key.description.empty() ? json_of(blend.prefixes[i])
                                                         : plans[i].key.description);
  Parts parts = open_parts(opened, plans, context.maker);
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] == nullptr) return nullptr;  // a warning said why
    sizes.push_back(parts[i]->size());
  }
  const IndexCache cache = context.maker.about.name.empty()
                               ? opened[0].cache
                               : cache_in(indices_of(blend.prefixes[0], "BlendedDataset"), context.data);
  if (!target) {
    const CacheKey key = key_of_blend(blend, part, describe_blend(described, part.split, sizes));
    return std::make_shared<BlendedDataset>(std::move(parts), blend_exhaustively(sizes, cache, key));
  }
  const auto exact =
      weighted ? samples_per_dataset(blend.weights, *target, 0.0) : std::vector<std::int64_t>(sizes);
  const std::int64_t all = std::accumulate(exact.begin(), exact.end(), std::int64_t{0});
  const std::int64_t size = weighted ? all : std::min(all, *target);
  const std::vector<double> weights =
      normalize(weighted ? blend.weights : std::vector<double>(sizes.begin(), sizes.end()));
  const CacheKey key = key_of_blend(blend, part, describe_blend(described, part.split, weights, size));
  return std::make_shared<BlendedDataset>(std::move(parts), blend_by_weight(weights, size, cache, key));
}

/// One pass of each data set, all of which must hold samples.
std::shared_ptr<const SampleSource> open_sets(const Blend& sets, const std::vector<Opened>& opened,
                                              const Context& context, Part part) {
  COL_CHECK(!part.num_samples,
            "--multiple-validation-sets: each must be one pass; got {} samples; add "
            "--full-validation",
            *part.num_samples);
  part.if_empty = "each validation set must hold some";
  Parts parts = open_parts(opened, parts_of(sets, opened, context, std::move(part), {}), context.maker);
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (parts[i] == nullptr)
      throw DataError(fmt::format(
          "{}: a validation set must hold samples; got none; add data, lower --seq-length or leave it out of "
          "--valid-data-path",
          sets.prefixes[i]));
  return std::make_shared<SampleSets>(std::move(parts));
}

std::vector<Opened> open_all(const Blend& blend, const Context& context) {
  std::vector<Opened> opened;
  for (const std::string& prefix : blend.prefixes) opened.push_back(open_prefix(prefix, context));
  return opened;
}

Sources open_paths(const Context& context, const Counts& counts) {
  const Blend blend = parse_blend(context.data.data_path);
  const std::vector<Opened> opened = open_all(blend, context);
  const SplitFractions fractions = parse_split(context.data.split);
  Sources sources;
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (fractions[i])
      sources[i] = open_blend(blend, opened, context, {static_cast<Split>(i), *fractions[i], counts[i]});
  return sources;
}

Sources open_paths_per_split(const Context& context, const Counts& counts) {
  Sources sources;
  const std::array paths{&context.data.train_data_path, &context.data.valid_data_path,
                         &context.data.test_data_path};
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (paths[i]->empty()) continue;
    Blend blend = parse_blend(*paths[i]);
    if (blend.prefixes.size() == 1) blend.weights.clear();
    const bool sets = context.data.multiple_validation_sets && static_cast<Split>(i) == Split::kValid;
    const auto open = sets && counts[i] != 0 ? open_sets : open_blend;
    sources[i] =
        open(blend, open_all(blend, context), context, {static_cast<Split>(i), Fraction{0, 1}, counts[i]});
  }
  return sources;
}

Sources open_mock(const Context& context, const Counts& counts) {
  if (!context.maker.mock)
    throw ConfigError("--mock-data: there is none of this kind; got it; give --data-path");
  Opened mock;
  mock.source = context.maker.mock();
  const SplitFractions thirds = parse_split("1,1,1");
  Sources sources;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (counts[i] != 0) {
      Part part{static_cast<Split>(i), *thirds[i], counts[i]};
      part.if_empty = fmt::format("there will be no {} batches; lower --seq-length", part.name());
      sources[i] = context.maker.open(mock, part);
    }
  }
  return sources;
}

}  // namespace

std::string state_of_file(const fs::path& path) {
  return fmt::format("{} {} bytes, changed {}\n", fs::canonical(path).string(), fs::file_size(path),
                     fs::last_write_time(path).time_since_epoch().count());
}

Sources open_sources(const config::Data& data, const Counts& counts, const SampleMaker& maker) {
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
        given, given == 0 ? "add --mock-data to try without data" : "leave the others out"));
  const Context context{data, maker};
  if (data.mock_data) return open_mock(context, counts);
  return per_split ? open_paths_per_split(context, counts) : open_paths(context, counts);
}

std::uint32_t numpy_seed(std::int64_t seed) {
  if (seed < 0 || seed > std::int64_t{0xffffffff})
    throw ConfigError(
        fmt::format("--seed must be 0 to 4294967295, as NumPy takes it; got {}; choose another", seed));
  return static_cast<std::uint32_t>(seed);
}

namespace {

/// What the Batches of a split are told of the order: 0 for --dataloader-type single and for a full
/// validation, the global batch size for cyclic. Throws ConfigError for another type.
std::int64_t cyclic_step(const config::Data& data, const config::Training& training, Split split) {
  if (data.dataloader_type != "single" && data.dataloader_type != "cyclic")
    throw ConfigError(fmt::format("--dataloader-type must be single or cyclic; got '{}'; choose one",
                                  data.dataloader_type));
  const bool in_order =
      data.dataloader_type == "single" || (training.full_validation && split == Split::kValid);
  return in_order ? 0 : training.global_batch_size;
}

/// Throws ConfigError when a split that the run reads holds no epoch of cyclic: the validation comes late.
void require_epochs(const Sources& sources, const config::Data& data, const config::Training& training,
                    const SoFar& done) {
  if (cyclic_step(data, training, Split::kTrain) == 0) return;
  const bool validates = evaluations(training, last_iteration(training, done)) > 0;
  const std::int64_t batch = training.global_batch_size;
  std::vector<std::string> found;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (cyclic_step(data, training, static_cast<Split>(i)) == 0) continue;
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
                  const SoFar& done, const BatchMaker& make) {
  require_epochs(sources, data, training, done);
  Splits splits;
  for (std::size_t i = 0; i < splits.size(); ++i)
    if (sources[i] != nullptr)
      splits[i] = make(sources[i], cyclic_step(data, training, static_cast<Split>(i)));
  return splits;
}

}  // namespace colonnade::data
