// Opens the data of a run: one sample source per split, whatever the kind of sample.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "colonnade/data/batches.h"
#include "colonnade/data/index_cache.h"
#include "colonnade/data/indexed/token_source.h"
#include "colonnade/data/split.h"
#include "colonnade/data/unique_description.h"

namespace colonnade::data {

/// train, valid, test; null for a split that is empty or not requested.
using Sources = std::array<std::shared_ptr<const SampleSource>, 3>;

/// A data set and the fingerprint of its files.
struct OpenedDataset {
  std::shared_ptr<const TokenSource> source;
  std::string fingerprint;
  std::filesystem::file_time_type changed = std::filesystem::file_time_type::min();  ///< last write time
  IndexCache cache{std::filesystem::path()};
};

/// Request for samples of one split of a data set.
struct SplitRequest {
  Split split = Split::kTrain;
  Fraction fraction;                        ///< fraction of the data set that the split covers
  std::optional<std::int64_t> num_samples;  ///< empty: one epoch
  CacheKey key = {};                        ///< key of its indices, without the settings of the index
  std::string if_empty = {};                ///< consequence of a split without samples, and the fix
  [[nodiscard]] const char* name() const { return kSplitNames[static_cast<std::size_t>(split)]; }
};

/// Creates the sample sources of one kind of data.
struct SampleSourceFactory {
  /// Samples of a split of one data set; null, after a warning with SplitRequest::if_empty, for an evaluation
  /// split without samples.
  std::function<std::shared_ptr<const SampleSource>(const OpenedDataset&, const SplitRequest&)> open;
  /// The data set of --mock-data; empty if there is none.
  std::function<std::shared_ptr<const TokenSource>()> mock;
  /// Opens the data set at a path; empty for an indexed data set (PREFIX.bin and PREFIX.idx).
  std::function<OpenedDataset(const std::string& path, const IndexCache& cache)> read = {};
  /// Megatron's class of the data set; index caches are not shared with Megatron if its name is empty.
  DatasetClass dataset_class = {};
};

/// Opens --data-path with --split, or paths per split, or --mock-data, and blends multiple data sets. With
/// --multiple-validation-sets those of the validation split are concatenated instead (ConcatDataset). Throws
/// ConfigError unless exactly one of the three is given, DataError for missing or damaged data.
Sources open_sources(const config::Data& data, const SampleCounts& counts,
                     const SampleSourceFactory& factory);

/// The run's --seed as a NumPy seed. Throws ConfigError outside 0 to 4294967295.
std::uint32_t numpy_seed(std::int64_t seed);

/// Creates the Batches of one split; `cyclic_step` as in Batches::Batches.
using BatchesFactory =
    std::function<std::unique_ptr<Batches>(std::shared_ptr<const SampleSource>, std::int64_t cyclic_step)>;

/// The batches of a run whose progress is `done`. Throws ConfigError for an unknown --dataloader-type, and if
/// a split that the run reads has no full cyclic epoch.
Splits to_batches(const Sources& sources, const config::Data& data, const config::Training& training,
                  const RunProgress& done, const BatchesFactory& make);

}  // namespace colonnade::data
