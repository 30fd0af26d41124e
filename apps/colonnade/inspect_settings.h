// The settings of `colonnade data inspect`: those of a run, as far as they decide its samples, and its own.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/config/parse.h"
#include "colonnade/data/split.h"
#include "verbs.h"

namespace colonnade::app {

/// What is shown, and how much of it.
struct InspectOptions {
  std::string json;
  data::Split split = data::Split::kTrain;
  std::int64_t samples = 0;  ///< that are asked for, of the split; 0: no samples are made
  bool unsaid = false;       ///< neither --samples nor the settings say how many
  bool one_pass = false;     ///< as many as the split has (--full-validation): `samples` follow from the data
  std::int64_t show = 3, from = 0, show_tokens = 16;
  std::int64_t longer_than = 0;
  bool check_tokens = false;

  /// Behind the last sample to show.
  [[nodiscard]] std::int64_t shown_end() const {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    return from > kMost - show ? kMost : from + show;
  }
  [[nodiscard]] std::size_t split_index() const { return static_cast<std::size_t>(split); }
  [[nodiscard]] const char* split_name() const { return data::kSplitNames[split_index()]; }
};

struct Inspection {
  config::Run run;  ///< complete and sound, as far as it decides samples
  InspectOptions options;
};

/// The words that name the data of the split; none with --mock-data.
const std::vector<std::string>& paths_of(const config::Run& run, data::Split split);

/// The verb's own flags.
const std::vector<config::Extra>& inspect_extras();

/// Throws ConfigError with all that is wrong, flags that do nothing here among it.
Inspection read_inspection(const Arguments& arguments);

}  // namespace colonnade::app
