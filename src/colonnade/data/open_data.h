// Opening the data of a run, whatever a sample is: from settings to one sample source per split.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "colonnade/data/batches.h"
#include "colonnade/data/dataset_names.h"
#include "colonnade/data/index_cache.h"
#include "colonnade/data/indexed/token_source.h"
#include "colonnade/data/split.h"

namespace colonnade::data {

/// train, valid, test; null where the split is empty or no samples of it are wanted.
using Sources = std::array<std::shared_ptr<const SampleSource>, 3>;

/// A data set with what tells this state of it from any other.
struct Opened {
  std::shared_ptr<const TokenSource> source;
  std::string identity;
  std::filesystem::file_time_type changed = std::filesystem::file_time_type::min();  ///< when it did last
  IndexCache cache{std::filesystem::path()};
};

/// Which part of a data set is wanted, and how much of it.
struct Part {
  Split split = Split::kTrain;
  Fraction fraction;
  std::optional<std::int64_t> num_samples;  ///< empty: one pass
  CacheKey key = {};                        ///< of its indices, but for what the plan adds
  std::string if_empty = {};                ///< what follows where it holds no samples, and the way out
  [[nodiscard]] const char* name() const { return kSplitNames[static_cast<std::size_t>(split)]; }
};

/// How samples are made.
struct SampleMaker {
  /// Of a part of one data set; null, after a warning with Part::if_empty, where an evaluation split has
  /// none.
  std::function<std::shared_ptr<const SampleSource>(const Opened&, const Part&)> open;
  /// The data set behind --mock-data; empty: there is none.
  std::function<std::shared_ptr<const TokenSource>()> mock;
  /// The data set at a path, with what tells its state; empty: .bin and .idx behind a prefix.
  std::function<Opened(const std::string& path, const IndexCache& cache)> read = {};
  /// What Megatron calls the samples; without a name its caches are not shared.
  DatasetClass about = {};
};

/// "PATH N bytes, changed T\n" of a file, which tells its state.
std::string state_of_file(const std::filesystem::path& path);

/// Opens --data-path with --split, or paths per split, or --mock-data, and blends what is more than one data
/// set. With --multiple-validation-sets those of the validation stay apart (SampleSets). Throws ConfigError
/// unless exactly one of the three is given, DataError for missing or damaged data.
Sources open_sources(const config::Data& data, const Counts& counts, const SampleMaker& maker);

/// The run's --seed as NumPy takes it. Throws ConfigError outside of 0 to 4294967295.
std::uint32_t numpy_seed(std::int64_t seed);

/// Batches of one split, of its samples and what they are told of the order (Batches::Batches).
using BatchMaker =
    std::function<std::unique_ptr<Batches>(std::shared_ptr<const SampleSource>, std::int64_t cyclic_step)>;

/// The batches of a run that is so far as `done`. Throws ConfigError for a --dataloader-type that is none,
/// and when a split that the run reads holds no epoch of cyclic.
Splits to_batches(const Sources& sources, const config::Data& data, const config::Training& training,
                  const SoFar& done, const BatchMaker& make);

}  // namespace colonnade::data
